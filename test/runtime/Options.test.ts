/** What a worker does not start with: every option that breaks its rule, by the name that was written, before any statement. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, layer as testLayer } from "@effect/vitest"
import { Config, Duration, Effect, Layer, Redacted, Schema } from "effect"
import { RetryPolicy } from "effect-awa"
import * as Job from "effect-awa/Job"
import { layer, layerShared, type WorkerLayerOptions } from "effect-awa/layers/Worker"
import * as SharedPool from "effect-awa/SharedPool"
import { server } from "./support.js"

const Anything = Job.make("anything", { payload: Schema.Unknown })
const AnythingLive = Anything.toLayer(() => Effect.void)

type Options = Partial<WorkerLayerOptions<ReadonlyArray<typeof Anything>>>

/** Whoever asks for anything is answered that nobody is there. */
const nowhere = Config.succeed(Redacted.make("postgres://localhost:1/nothing"))
const garbage = Config.succeed(Redacted.make("not a url"))

/** Of the type of a duration, and none. */
const noDuration: Duration.DurationInput = "1e3 seconds"

const started = (options: Options) =>
  Layer.build(
    layer({ jobs: [Anything], queues: { default: { concurrency: 1 } }, database: nowhere, ...options }).pipe(
      Layer.provide(AnythingLive)
    )
  ).pipe(
    Effect.scoped,
    Effect.flip,
    Effect.map((error) => (error._tag === "DatabaseError" ? "started" : `${error._tag} ${error.message}`))
  )

const integers = [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY]
const pauses = [0, -1, Number.NaN, "1 millis", "2 days", Duration.infinity, noDuration] as const
const pause = "a duration from 10 millis to 1 day"
const upToADay = "a duration above zero, at most a day"
const noDay = [0, Number.NaN, "25 hours", Duration.infinity, noDuration] as const
const staleness = "a duration from 20 millis to 1 day"
const noStaleness = [0, "10 millis", "25 hours", Duration.infinity, noDuration] as const
const retention = "a duration from 1 second, or Duration.infinity"
const noRetention = [0, "10 millis", Number.NaN, noDuration] as const
const noGrace = [-1, Number.NaN, "8 days", Duration.infinity, noDuration] as const

/** The options that are wrong, the name and the rule that are answered, and the values. */
const table = <A>(option: string, rule: string, values: ReadonlyArray<A>, options: (value: A) => Options) =>
  values.map((value) => ({ expected: `${option}: ${rule}`, options: options(value) }))

const ofTheWorker = [
  ...table("concurrency", "an integer from 1 to 10000", [...integers, 1e9], (concurrency) => ({ concurrency })),
  ...table("queues", "at least one queue", [{}], (queues) => ({ queues })),
  ...table('queues: the name ""', "expected a non-empty text", [""], (queue) => ({
    queues: { [queue]: { concurrency: 1 } }
  })),
  ...table("queues.a.concurrency", "an integer from 1 to 10000", [...integers, 1e9], (concurrency) => ({
    queues: { a: { concurrency } }
  })),
  ...table("queues.a.rateLimit.limit", "an integer from 1 to 1000000", integers, (limit) => ({
    queues: { a: { concurrency: 1, rateLimit: { limit, interval: "1 second" } } }
  })),
  ...table(
    "queues.a.rateLimit.interval",
    "a duration from 1 millis to 24 days",
    [0, "25 days", Duration.infinity, noDuration] as const,
    (interval) => ({ queues: { a: { concurrency: 1, rateLimit: { limit: 1, interval } } } })
  ),
  ...table("name", "a text with no NUL character and no lone surrogate", ["x\u0000", "x\ud800"], (name) => ({ name })),
  ...table("beat", pause, pauses, (beat) => ({ beat })),
  // @ts-expect-error -- as from a configuration without types
  ...table("beat", pause, ["often", null, {}], (beat) => ({ beat })),
  ...table("busyTick", pause, pauses, (busyTick) => ({ busyTick })),
  ...table("idleTick", pause, pauses, (idleTick) => ({ idleTick })),
  ...table("shutdownGrace", "a duration of at most 7 days", noGrace, (shutdownGrace) => ({ shutdownGrace })),
  ...table("interruptGrace", "a duration of at most 7 days", noGrace, (interruptGrace) => ({ interruptGrace })),
  ...table(
    "shutdownDeadline",
    "a duration of at most 24 days",
    [-1, "25 days", noDuration] as const,
    (shutdownDeadline) => ({ shutdownDeadline })
  ),
  ...table("shutdownDeadline", "no less than shutdownGrace and interruptGrace together", [0], (shutdownDeadline) => ({
    shutdownDeadline
  }))
]

const ofItsServices = [
  ...table("completion.maxBatch", "an integer from 1 to 10000", [...integers, 1e6], (maxBatch) => ({
    completion: { maxBatch }
  })),
  ...table("completion.lingerMillis", "an integer from 0 to 10000", [-1, 0.5, 1e9, Number.NaN], (lingerMillis) => ({
    completion: { lingerMillis }
  })),
  ...table("wakeup.poll", pause, pauses, (poll) => ({ wakeup: { poll } })),
  ...table("wakeup.pollWhileListening", pause, pauses, (pollWhileListening) => ({ wakeup: { pollWhileListening } })),
  ...table("wakeup.probe", pause, pauses, (probe) => ({ wakeup: { probe } })),
  ...table("maintenance.staleness", staleness, noStaleness, (staleness) => ({ maintenance: { staleness } })),
  ...table(
    "maintenance.staleness",
    "at least two beats, or attempts that are alive are taken for abandoned",
    ["29 seconds"] as const,
    (staleness) => ({ maintenance: { staleness } })
  ),
  ...table("maintenance.segmentEntries", "an integer from 1 to 1000000000", integers, (segmentEntries) => ({
    maintenance: { segmentEntries }
  })),
  ...table(
    "maintenance.segmentAge",
    "a duration from 1 second to 30 days",
    [0, "1 millis", Duration.infinity, noDuration] as const,
    (segmentAge) => ({ maintenance: { segmentAge } })
  ),
  ...table(
    "maintenance.completedHistory",
    "a duration of at most 365 days",
    [-1, Number.NaN, Duration.infinity, noDuration] as const,
    (completedHistory) => ({ maintenance: { completedHistory } })
  ),
  ...table(
    "maintenance.evidence",
    "a duration of at most 3 days",
    [-1, "4 days", Duration.infinity, noDuration] as const,
    (evidence) => ({ maintenance: { evidence } })
  ),
  ...table("maintenance.terminalRetention", retention, noRetention, (terminalRetention) => ({
    maintenance: { terminalRetention }
  })),
  ...table("maintenance.deadLetterRetention", retention, noRetention, (deadLetterRetention) => ({
    maintenance: { deadLetterRetention }
  })),
  ...table("reconciliation.budget", upToADay, noDay, (budget) => ({ reconciliation: { budget } })),
  ...table("reconciliation.staleness", staleness, noStaleness, (staleness) => ({ reconciliation: { staleness } })),
  ...table("reconciliation.watchers", "an integer from 0 to 1000000", [-1, 0.5, Number.NaN], (watchers) => ({
    reconciliation: { watchers }
  })),
  ...table("reconciliation.watcherLife", upToADay, noDay, (watcherLife) => ({ reconciliation: { watcherLife } })),
  ...table("reconciliation.lingerMillis", "an integer from 0 to 10000", [-1, 1e9, Number.NaN], (lingerMillis) => ({
    reconciliation: { lingerMillis }
  }))
]

const url = "expected postgres://user:password@host:port/database"

const ofThePools = [
  ...table("database", url, [garbage], (database) => ({ database })),
  ...table("listenDatabase", url, [garbage], (listenDatabase) => ({ listenDatabase })),
  ...table("schema", "expected a non-empty name", [""], (schema) => ({ schema })),
  ...table("runtimeConnections", "an integer from 1 to 10000", integers, (runtimeConnections) => ({
    runtimeConnections
  })),
  ...table("applicationTransaction", upToADay, noDay, (applicationTransaction) => ({ applicationTransaction })),
  ...table("callerOwned", "an integer from 1", integers, (callerOwned) => ({ callerOwned })),
  ...table("budget.processes", "an integer from 1", integers, (processes) => ({ budget: { processes } })),
  ...table("budget.applicationConnections", "an integer from 1 to 10000", integers, (applicationConnections) => ({
    budget: { applicationConnections }
  }))
]

const payload = Schema.Unknown

/** What a definition says, and what it is told. */
const definitions = [
  ...[0, -1, 1.5, Number.NaN, 32_768].map((maxAttempts) => ({
    expected: "maxAttempts: expected an integer from 1 to 32767",
    job: Job.make("x", { payload, maxAttempts })
  })),
  { expected: "queue: expected a non-empty text", job: Job.make("x", { payload, queue: "" }) },
  { expected: "queue: no control characters", job: Job.make("x", { payload, queue: "a\u0000" }) },
  // @ts-expect-error -- as from a configuration without types
  { expected: "priority: expected an integer from 1 to 4", job: Job.make("x", { payload, priority: 9 }) },
  ...([0, -1, Number.NaN, noDuration] as const).map((timeout) => ({
    expected: "timeout: a duration above zero",
    job: Job.make("x", { payload, timeout })
  })),
  ...[Number.NaN, Number.POSITIVE_INFINITY].map((factor) => ({
    expected: "retry.factor: a finite number",
    job: Job.make("x", { payload, retry: RetryPolicy.make({ factor }) })
  }))
]

describe("a worker's options", () => {
  testLayer(PgClient.layerConfig({ url: server }), { excludeTestServices: true })("", (it) => {
    it.effect("are refused by name and rule when the layer is built", () =>
      Effect.gen(function* () {
        for (const { expected, options } of [...ofTheWorker, ...ofItsServices]) {
          assert.strictEqual(yield* started(options), `WorkerMisconfigured ${expected}`)
        }
        const twice = 'WorkerMisconfigured jobs: the kind "anything": listed once'
        assert.strictEqual(yield* started({ jobs: [Anything, Anything] }), twice)
      })
    )

    it.effect("of its pools are refused by the names that the layer gives them, before anything is opened", () =>
      Effect.gen(function* () {
        for (const { expected, options } of ofThePools) {
          assert.strictEqual(yield* started(options), `PoolMisconfigured ${expected}`)
        }
      })
    )

    it.effect("are the defaults of its jobs too, which are told as an enqueue is", () =>
      Effect.gen(function* () {
        for (const { expected, job } of definitions) {
          const refused = yield* Layer.build(
            layer({ jobs: [job], queues: { default: { concurrency: 1 } }, database: nowhere }).pipe(
              Layer.provide(job.toLayer(() => Effect.void))
            )
          ).pipe(Effect.scoped, Effect.flip)
          assert.strictEqual(refused._tag, "WorkerMisconfigured")
          assert.strictEqual(refused.message, `jobs: the kind "x": ${expected}`)
          if (expected.startsWith("timeout") || expected.startsWith("retry")) continue
          const { message, _tag } = yield* Effect.flip(job.enqueue(1))
          assert.strictEqual(`${_tag} ${message}`, `PayloadRejected ${expected}`)
        }
      })
    )

    it.effect("are taken at their bounds", () =>
      Effect.gen(function* () {
        for (const options of [
          { completion: { maxBatch: 1, lingerMillis: 0 } },
          { completion: { maxBatch: 10_000, lingerMillis: 10_000 } },
          { wakeup: { poll: "10 millis", pollWhileListening: "1 day", probe: "10 millis" } },
          { maintenance: { segmentEntries: 1, segmentAge: "1 second", completedHistory: 0, evidence: 0 } },
          { maintenance: { terminalRetention: Duration.infinity, deadLetterRetention: "1 second" } },
          { beat: "10 millis", maintenance: { staleness: "20 millis" }, shutdownGrace: 0, interruptGrace: 0 },
          { reconciliation: { budget: "1 day", watchers: 0, watcherLife: "1 day", lingerMillis: 0 } },
          { name: "", callerOwned: 1, budget: { processes: 1, applicationConnections: 1 }, runtimeConnections: 1 }
        ] satisfies ReadonlyArray<Options>) {
          assert.strictEqual(yield* started(options), "started")
        }
      })
    )

    it.effect("of pools that are shared are refused by the names that were written there", () =>
      Effect.gen(function* () {
        const client = yield* PgClient.PgClient
        const runtime = { url: Redacted.make("postgres://localhost:1/nothing") }
        const refused = yield* Layer.build(
          layerShared({ jobs: [Anything], queues: { a: { concurrency: 1 } }, applicationTransaction: 0 }).pipe(
            Layer.provide([AnythingLive, Layer.succeed(SharedPool.SharedPool, { client, runtime, callerOwned: 1 })])
          )
        ).pipe(Effect.scoped, Effect.flip)
        assert.strictEqual(refused.message, `applicationTransaction: ${upToADay}`)
        const pool = SharedPool.layer({ url: Redacted.make("not a url"), connections: 8 })
        assert.strictEqual((yield* Layer.build(pool).pipe(Effect.scoped, Effect.flip)).message, `url: ${url}`)
      })
    )
  })
})
