/**
 * A process of the load: a worker, or a producer. Each has a process of its own, so that neither waits for the other's event
 * loop, and both talk to the engine as an application does, through the runtime.
 */
import { PgClient } from "@effect/sql-pg"
import {
  Admin,
  type Attempt,
  Callbacks,
  Enqueue,
  Job,
  type JobId,
  JobOutcome,
  RetryPolicy,
  RuntimePool
} from "effect-awa"
import * as Worker from "effect-awa/layers/Worker"
import { Cause, Config, Effect, Layer, Logger, LogLevel, Redacted, Schema } from "effect"
import { makeRandom } from "../../stress/random.js"
import * as Engine from "../engine.js"
import { type FromChild, Load, type Mix, type ProducerLoad, ToChild, type WorkerLoad } from "./protocol.js"
import { bucketOf } from "./statistics.js"

const counters: Record<string, number> = {}
let latency: Record<string, number> = {}
const count = (what: string, by = 1): void => {
  counters[what] = (counters[what] ?? 0) + by
}
const clock = () => performance.timeOrigin + performance.now()

const tell = (message: FromChild): void => {
  process.send?.(message)
}

let taken = 0
const stopped = new Promise<void>((resolve) => {
  process.on("message", (raw) => {
    const message = Schema.decodeUnknownSync(ToChild)(raw)
    if (message.type === "stop") resolve()
    else taken = message.count
  })
  process.on("disconnect", resolve)
})

const ticking = (millis: number) => {
  const sample = () => {
    const { system, user } = process.cpuUsage()
    tell({ type: "sample", sample: { at: clock(), counters: { ...counters, cpuMicros: system + user }, latency } })
    latency = {}
  }
  const timer = setInterval(sample, millis)
  return Effect.addFinalizer(() =>
    Effect.sync(() => {
      clearInterval(timer)
      sample()
    })
  )
}

// ---- the worker -------------------------------------------------------------------------------------------------------

const behaviours = ["plain", "retry", "scheduled", "unique", "long", "snooze", "cancel", "callback"] as const
type Behaviour = (typeof behaviours)[number]

const Payload = Schema.Struct({ at: Schema.Number, do: Schema.Literal(...behaviours), pad: Schema.String })

const Answered = Schema.Struct({ yes: Schema.Boolean })

class Refused extends Schema.TaggedError<Refused>()("Refused", { reason: Schema.String }) {}

const worker = (load: WorkerLoad) => {
  const Bench = Job.make(Engine.kind, {
    payload: Payload,
    error: Refused,
    retry: RetryPolicy.make({ base: load.againMillis, factor: 1, jitter: false })
  })
  const completed = Effect.sync(() => count("completed"))
  /** Half of them wait for the answer with their permit, the others park. Somebody answers a little later. */
  const calledBack = (job: Attempt.Attempt<typeof Engine.kind, typeof Payload.Type>) =>
    Effect.gen(function* () {
      const callback = yield* job.callback({ timeout: "30 seconds", result: Answered })
      yield* Callbacks.resume(callback.id, { yes: true }).pipe(
        Effect.delay("300 millis"),
        Effect.tapError((error) => Effect.logWarning("The answer of a callback failed", error)),
        Effect.ignore,
        Effect.forkDaemon
      )
      if (job.jobId % 2n === 0n) {
        count("parked")
        return callback.park
      }
      yield* callback.await
      count("answered")
      return yield* completed
    }).pipe(Effect.mapError((error) => new Refused({ reason: error._tag })))
  const handlers = Bench.toLayer((job) =>
    Effect.suspend(() => {
      const { at, do: behaviour } = job.payload
      const first = job.runLease === 1n
      count("started")
      if (first && behaviour !== "scheduled" && behaviour !== "cancel") {
        count("fresh")
        if (at > 0) {
          const bucket = bucketOf(clock() - at)
          latency[bucket] = (latency[bucket] ?? 0) + 1
        }
      }
      if (first && behaviour === "retry") {
        count("failed")
        return new Refused({ reason: "the first attempt of this one fails" })
      }
      if (first && behaviour === "snooze") {
        count("snoozed")
        return Effect.succeed(JobOutcome.snooze(load.againMillis))
      }
      if (first && behaviour === "callback") return calledBack(job)
      return behaviour === "long" || behaviour === "cancel" ? Effect.delay(completed, load.longMillis) : completed
    })
  )
  const { maintenance } = load
  return Worker.layer({
    jobs: [Bench],
    queues: { [load.queue]: { concurrency: load.concurrency } },
    database: Config.succeed(Redacted.make(load.url)),
    beat: load.beatMillis,
    shutdownGrace: load.longMillis + 2000,
    wakeup: { poll: load.pollMillis, pollWhileListening: load.pollMillis },
    maintenance: {
      staleness: maintenance.stalenessMillis,
      segmentAge: maintenance.segmentAgeMillis,
      segmentEntries: maintenance.segmentEntries,
      completedHistory: maintenance.historyMillis,
      evidence: maintenance.historyMillis, // nobody asks later here, and short history is the point
      ...(maintenance.terminalMillis === undefined ? {} : { terminalRetention: maintenance.terminalMillis })
    }
  }).pipe(Layer.provide(handlers), Layer.provide(PgClient.layer({ url: Redacted.make(load.url), maxConnections: 2 })))
}

const work = (load: WorkerLoad) =>
  Effect.gen(function* () {
    yield* ticking(load.tickMillis)
    yield* Layer.build(worker(load))
    tell({ type: "ready" })
    yield* Effect.promise(() => stopped)
  })

// ---- the producer -----------------------------------------------------------------------------------------------------

const pads = Array.from({ length: Engine.payloadBytes }, (_, length) => "x".repeat(length))

const produce = (load: ProducerLoad) =>
  Effect.gen(function* () {
    yield* ticking(load.tickMillis)
    const random = makeRandom(load.seed, "producer")
    const weights: Record<Behaviour, number> = { ...load.mix, plain: 1 - shareOf(load.mix) }
    let keys = 0

    /** Every second key was another job's a while ago; some of those have ended since. */
    const nextKey = () => {
      const n = keys++
      return `${load.seed}/${n % 2 === 0 ? n : Math.max(0, n - 201)}`
    }
    const job = (at: number, behaviour: Behaviour): Enqueue.EncodedJob => {
      const args = { at, do: behaviour, pad: "" }
      // as long as the payloads of the filled queues: jsonb writes a space after every colon and comma
      args.pad = pads[Math.max(0, Engine.payloadBytes - JSON.stringify(args).length - 5)] ?? ""
      return {
        kind: Engine.kind,
        args,
        options: {
          queue: load.queue,
          delay:
            behaviour === "scheduled"
              ? random.between(1000, 5000)
              : behaviour === "cancel" // waiting, due or running when the operator comes
                ? random.between(0, 2000)
                : undefined,
          unique: behaviour === "unique" ? { key: nextKey() } : undefined
        }
      }
    }
    /** What an operator cancels, once a second. */
    const doomed: Array<JobId.JobId> = []
    const admin = yield* Admin.Admin
    const cancelling = Effect.suspend(() => admin.cancel(doomed.splice(0))).pipe(
      Effect.map((answers) => answers.forEach(({ answer }) => count(`cancel: ${answer}`))),
      Effect.tapError((error) => Effect.logWarning("Cancelling failed", error)),
      Effect.ignore,
      Effect.delay("1 second"),
      Effect.forever
    )
    yield* Effect.forkScoped(cancelling)
    const enqueue = (size: number) =>
      Effect.suspend(() => {
        const at = clock()
        const behaviours = Array.from({ length: size }, () => random.weighted(weights))
        return Effect.map(Enqueue.insertJobs(behaviours.map((behaviour) => job(at, behaviour))), (answers) => {
          for (const [i, { answer, id }] of answers.entries()) {
            if (answer !== "inserted") {
              count(answer)
              continue
            }
            const behaviour = behaviours[i] ?? "plain"
            count("enqueued")
            count(behaviour)
            if (behaviour === "cancel") doomed.push(id)
            else if (behaviour !== "scheduled") count("fresh")
          }
        })
      })

    const state = { stopped: false }
    void stopped.then(() => {
      state.stopped = true
    })
    const started = clock()
    /** How many jobs there should be by now, over those that there are. */
    const wanted = () => {
      const enqueued = counters["enqueued"] ?? 0
      const open =
        load.rate === undefined
          ? load.waiting - ((counters["fresh"] ?? 0) - taken)
          : ((clock() - started) / 1000) * load.rate - enqueued
      return Math.floor(Math.min(load.batch, open, (load.jobs ?? Number.POSITIVE_INFINITY) - enqueued))
    }
    tell({ type: "ready" })
    while (!state.stopped) {
      const size = wanted()
      if (size >= (load.rate === undefined ? Math.min(load.batch, load.waiting / 4) : 1) || size === load.jobs) {
        yield* enqueue(size)
      } else if (load.jobs !== undefined && (counters["enqueued"] ?? 0) >= load.jobs) break
      else yield* Effect.sleep("5 millis")
    }
    yield* Effect.promise(() => stopped)
  }).pipe(
    Effect.provide(PgClient.layer({ url: Redacted.make(load.url), maxConnections: 2 })),
    Effect.provide(Layer.provide(Admin.layer(), RuntimePool.layer({ url: Redacted.make(load.url), maxConnections: 1 })))
  )

const shareOf = (mix: Mix): number => Object.values(mix).reduce((total, share) => total + share, 0)

// ---- the process ------------------------------------------------------------------------------------------------------

const program = Effect.gen(function* () {
  const load = yield* Schema.decode(Schema.parseJson(Load))(process.argv[2] ?? "")
  yield* load.role === "worker" ? work(load) : produce(load)
}).pipe(Effect.scoped, Logger.withMinimumLogLevel(LogLevel.Warning))

await Effect.runPromise(
  Effect.catchAllCause(program, (cause) => Effect.sync(() => tell({ type: "failed", reason: Cause.pretty(cause) })))
)
if (process.connected) process.disconnect()
process.exit(0)
