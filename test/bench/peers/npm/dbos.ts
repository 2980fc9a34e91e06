/** DBOS Transact: a workflow per job. */
import { DBOS, DBOSClient } from "@dbos-inc/dbos-sdk"
import pg from "pg"
import { counted } from "../counted.js"
import { accountOf, changeAccount, type Payload, type Place, serve } from "../serve.js"
import { versionOf } from "./versions.js"

const connections = 20
const workerConcurrency = 100
const applicationVersion = "bench"

const configure = ({ url }: Place) =>
  DBOS.setConfig({
    name: "bench",
    systemDatabaseUrl: url,
    systemDatabasePoolSize: connections,
    logLevel: "error",
    applicationVersion
  })

await serve({
  describe: {
    name: "DBOS Transact",
    version: versionOf("@dbos-inc/dbos-sdk"),
    configuration: `a workflow per job, ${workerConcurrency} at once, ${connections} connections, minPollingIntervalMs 20; one enqueue per job, ${connections} at a time`,
    guarantee: "a dead process's workflows are resumed after their last completed step",
    owned: "not atomic: the update commits by itself, then its step's checkpoint, then the workflow's completion"
  },
  bulk: { size: 1, calls: connections },
  install: async (place) => {
    configure(place)
    await DBOS.launch()
    await DBOS.shutdown()
  },
  producer: async ({ url }) => {
    const client = await DBOSClient.create({
      systemDatabaseUrl: url,
      systemDatabasePoolSize: connections,
      applicationName: "bench"
    })
    return {
      enqueue: async (queueName, payloads) => {
        for (const payload of payloads) {
          await client.enqueue({ queueName, workflowName: "bench", appVersion: applicationVersion }, payload)
        }
      },
      close: () => client.destroy()
    }
  },
  work: async (place, { lane, queues, started }) => {
    configure(place)
    // A data source would commit the update together with its step's checkpoint, but those that the registry has (4.x) call
    // functions which this SDK no longer exports.
    const accounts = lane === "owned" ? new pg.Pool({ connectionString: place.url, max: connections }) : undefined
    DBOS.registerWorkflow(
      async (payload: Payload) => {
        started(payload)
        if (accounts === undefined) return
        await DBOS.runStep(() => accounts.query(changeAccount, [accountOf(payload)]).then(() => null), {
          name: "change"
        })
      },
      { name: "bench" }
    )
    await DBOS.launch()
    for (const queue of queues) {
      await DBOS.registerQueue(queue, {
        workerConcurrency: Math.ceil(workerConcurrency / queues.length),
        minPollingIntervalMs: 20,
        onConflict: "always_update"
      })
    }
    return { close: () => DBOS.shutdown() }
  },
  remaining: ({ url }) =>
    counted(
      url,
      "select count(*)::int as left from dbos.workflow_status where queue_name like 'bench%' and status <> 'SUCCESS'"
    )
})
