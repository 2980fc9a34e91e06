/** graphile-worker, batched as its page on performance has it, or plain: the first argument says which. */
import { makeWorkerUtils, run, type TaskList } from "graphile-worker"
import { counted } from "../counted.js"
import { accountOf, changeAccount, type Payload, serve } from "../serve.js"
import { versionOf } from "./versions.js"

const batched = process.argv[2] !== "plain"

const silent = { error: console.error, warn: console.error, info: () => undefined, debug: () => undefined }
const { Logger } = await import("graphile-worker")
const logger = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") silent.error(message)
})

const isPayload = (value: unknown): value is Payload =>
  typeof value === "object" && value !== null && "n" in value && typeof value.n === "number"

await serve({
  describe: {
    name: batched ? "graphile-worker" : "graphile-worker, plain",
    version: versionOf("graphile-worker"),
    configuration:
      "24 concurrent jobs, 25 connections" +
      (batched ? ", localQueue of 500, completeJobBatchDelay 0" : "") +
      "; addJobs of 1,000; what others call queues are its tasks",
    guarantee: "at least once; a dead worker's jobs run again after four hours; completed jobs are deleted",
    owned: "not atomic: the update commits by itself, the job is deleted afterwards"
  },
  bulk: { size: 1000, calls: 2 },
  install: async ({ url }) => {
    const utils = await makeWorkerUtils({ connectionString: url, logger })
    await utils.migrate()
    await utils.release()
  },
  producer: async ({ url }) => {
    const utils = await makeWorkerUtils({ connectionString: url, logger })
    return {
      enqueue: (queue, payloads) => {
        const [first] = payloads
        return payloads.length === 1 && first !== undefined
          ? utils.addJob(queue, first)
          : utils.addJobs(payloads.map((payload) => ({ identifier: queue, payload })))
      },
      close: async () => utils.release()
    }
  },
  work: async ({ url }, { lane, queues, started }) => {
    const task: TaskList[string] = async (payload, helpers) => {
      if (!isPayload(payload)) throw new Error("not a payload")
      started(payload)
      if (lane === "owned") await helpers.query(changeAccount, [accountOf(payload)])
    }
    const runner = await run({
      preset: {
        worker: {
          connectionString: url,
          concurrentJobs: 24,
          // the handlers of the owned lane use its connections too
          maxPoolSize: lane === "owned" ? 49 : 25,
          logger,
          ...(batched ? { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } : {})
        }
      },
      taskList: Object.fromEntries(queues.map((queue) => [queue, task])),
      noHandleSignals: true
    })
    return { close: () => runner.stop() }
  },
  remaining: ({ url }) => counted(url, "select count(*)::int as left from graphile_worker._private_jobs")
})
