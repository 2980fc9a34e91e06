/** Programs that must compile, and programs that must not. Checked by the compiler; nothing here runs. */
import { SqlClient } from "@effect/sql/SqlClient"
import type { SqlError } from "@effect/sql/SqlError"
import * as PgClient from "@effect/sql-pg/PgClient"
import { Config, Context, Effect, Layer, Schema } from "effect"
import type { Enqueue, FinalizationReceipt, FinalizationToken, Settled } from "effect-awa"
import * as Job from "effect-awa/Job"
import type { DuplicateJob, PayloadRejected } from "effect-awa/JobError"
import * as JobOutcome from "effect-awa/JobOutcome"
import * as Worker from "effect-awa/layers/Worker"
import { RuntimePool } from "effect-awa/RuntimePool"

class CardDeclined extends Schema.TaggedError<CardDeclined>()("CardDeclined", {}) {}
class Cards extends Context.Tag("Cards")<
  Cards,
  {
    readonly charge: (id: number, key: string) => Effect.Effect<number, CardDeclined>
  }
>() {}

const SendReceipt = Job.make("send-receipt", { payload: Schema.Struct({ invoiceId: Schema.Int }) })
const Charge = Job.make("charge", {
  payload: Schema.Struct({ invoiceId: Schema.Int }),
  error: CardDeclined,
  queue: "billing"
})

// the user's own repository, written against SqlClient, knows nothing of effect-awa and joins all the same
const markPaid = (id: number, paid: number): Effect.Effect<void, SqlError, SqlClient> =>
  Effect.flatMap(SqlClient, (sql) => Effect.asVoid(sql`update invoices set paid = ${paid} where id = ${id}`))

const ChargeLive = Charge.toLayerCallerOwned((job) =>
  Effect.gen(function* () {
    const cards = yield* Cards
    const paid = yield* cards.charge(job.payload.invoiceId, job.idempotencyKey)
    return yield* job.finalize(
      Effect.gen(function* () {
        yield* markPaid(job.payload.invoiceId, paid)
        yield* Effect.orDie(SendReceipt.enqueue({ invoiceId: job.payload.invoiceId }))
      })
    )
  })
)
const SendReceiptLive = SendReceipt.toLayer((job) =>
  Effect.as(Effect.log(job.payload.invoiceId), JobOutcome.snooze("1 minute"))
)

const database = Config.redacted("AWA_DATABASE_URL")
const Client = PgClient.layerConfig({ url: database })
const CardsLive = Layer.succeed(Cards, { charge: () => Effect.succeed(1) })
const Main = Worker.layer({ jobs: [Charge, SendReceipt], queues: { billing: { concurrency: 20 } }, database }).pipe(
  Layer.provide([ChargeLive, SendReceiptLive]),
  Layer.provide([CardsLive, Client])
)
export const main: Effect.Effect<never, Worker.WorkerLayerError> = Layer.launch(Main)

// unique jobs: DuplicateJob is an error only where `onConflict` may be "error"
type Enqueueing<E> = Effect.Effect<Job.Enqueued<"sync">, PayloadRejected | SqlError | E, SqlClient>
const payload = Schema.Struct({ account: Schema.Int })
const Sync = Job.make("sync", { payload, unique: { by: ["kind"], states: "successful", window: "1 hour" } })
const SyncStrictly = Job.make("sync", {
  payload,
  unique: ({ account }) => ({ key: String(account), onConflict: "error" })
})
declare const someOptions: Enqueue.EnqueueOptions
export const unique: ReadonlyArray<Enqueueing<never>> = [
  Sync.enqueue({ account: 1 }),
  Sync.enqueue({ account: 1 }, { priority: 1 }),
  Sync.enqueue({ account: 1 }, { unique: false }),
  Sync.enqueue({ account: 1 }, { unique: { key: "1", states: "unclaimed", onConflict: "replace" } }),
  Sync.enqueue({ account: 1 }, { unique: { by: [], key: "1", window: "1 day" } }),
  // @ts-expect-error the options say error
  Sync.enqueue({ account: 1 }, { unique: { onConflict: "error" } }),
  // @ts-expect-error the options may say error
  Sync.enqueue({ account: 1 }, someOptions),
  // @ts-expect-error the definition says error
  SyncStrictly.enqueue({ account: 1 })
]
export const duplicates: ReadonlyArray<Enqueueing<DuplicateJob>> = [
  Sync.enqueue({ account: 1 }, { unique: { onConflict: "error" } }),
  Sync.enqueue({ account: 1 }, someOptions),
  SyncStrictly.enqueue({ account: 1 })
]
Job.make("sync", { payload, unique: ({ account }) => account > 0 && { states: "all", window: "1 day" } })
// @ts-expect-error held after the end: for how long?
Job.make("sync", { payload, unique: { states: "successful" } })
// @ts-expect-error held after any end: for how long?
Sync.enqueue({ account: 1 }, { unique: { states: "all" } })
// @ts-expect-error no such preset
Sync.enqueue({ account: 1 }, { unique: { states: "running" } })
// @ts-expect-error no such part of a job
Sync.enqueue({ account: 1 }, { unique: { by: ["payload"] } })
// @ts-expect-error no such policy
Sync.enqueue({ account: 1 }, { unique: { onConflict: "ignore" } })
// @ts-expect-error a misspelt option
Sync.enqueue({ account: 1 }, { unique: { onconflict: "skip" } })
// @ts-expect-error a misspelt option beside a right one
Sync.enqueue({ account: 1 }, { priority: 1, dely: "1 minute" })

// a caller-owned handler selects another outcome by a typed failure
Charge.toLayerCallerOwned(() => JobOutcome.end(JobOutcome.snooze("1 minute")))

// a callback's answer is what its schema says; a caller-owned handler parks by a typed failure
Charge.toLayerCallerOwned((job) =>
  Effect.gen(function* () {
    const callback = yield* job.callback({ timeout: "1 hour", result: Schema.Struct({ paid: Schema.Int }) })
    if (job.payload.invoiceId === 0) return yield* JobOutcome.end(callback.park)
    const { paid } = yield* callback.await
    return yield* job.finalize(markPaid(job.payload.invoiceId, paid))
  })
)
SendReceipt.toLayer((job) =>
  Effect.map(job.callback({ timeout: "1 hour", result: Schema.Unknown }), (callback) => callback.park)
)

// ---- none of these compiles ----
Charge.toLayerCallerOwned((job) =>
  // @ts-expect-error parking is no receipt
  Effect.map(job.callback({ timeout: "1 hour", result: Schema.Unknown }), (callback) => callback.park)
)
// @ts-expect-error forgetting to finalize
Charge.toLayerCallerOwned(() => Effect.void)
// @ts-expect-error an outcome is no receipt
Charge.toLayerCallerOwned(() => Effect.succeed(JobOutcome.snooze("1 minute")))

declare const foreign: FinalizationReceipt.FinalizationReceipt<"send-receipt">
// @ts-expect-error a receipt of another kind
Charge.toLayerCallerOwned(() => Effect.succeed(foreign))
// @ts-expect-error a forged receipt
Charge.toLayerCallerOwned(() => Effect.succeed({ kind: "charge" }))
// @ts-expect-error an ordinary handler returning a receipt
SendReceipt.toLayer(() => Effect.succeed(foreign))
// @ts-expect-error a failure that the job does not declare
Charge.toLayer(() => Effect.fail(new Error("undeclared")))
// @ts-expect-error the runtime pool
Charge.toLayerCallerOwned((job) => Effect.zipRight(RuntimePool, job.finalize(Effect.void)))
// @ts-expect-error the runtime pool, in an ordinary handler
SendReceipt.toLayer(() => Effect.asVoid(RuntimePool))
// @ts-expect-error a misspelt payload field
SendReceipt.enqueue({ invoiceID: 1 })
// @ts-expect-error a priority that does not exist
SendReceipt.enqueue({ invoiceId: 1 }, { priority: 7 })
// @ts-expect-error a plain object is no token
export const token: FinalizationToken.FinalizationToken = { jobId: 1n, runLease: 1n }
// @ts-expect-error a plain object is no receipt
export const receipt: FinalizationReceipt.FinalizationReceipt<"charge"> = { kind: "charge" }
// @ts-expect-error a plain object is no proof that frees a permit
export const settled: Settled.Settled = { how: "closed", outcome: "completed" }

// completing outside a transaction: the capability stays in R, nothing provides it, the program does not launch
const Outside = Charge.toLayerCallerOwned((job) => job.completeInTx)
// @ts-expect-error ApplicationTransaction is never provided by a layer
export const outside: Effect.Effect<never, unknown> = Layer.launch(
  Worker.layer({ jobs: [Charge], queues: {}, database }).pipe(Layer.provide(Outside), Layer.provide(Client))
)
// @ts-expect-error a kind without a handler
export const missing: Effect.Effect<never, unknown> = Layer.launch(
  Worker.layer({ jobs: [Charge], queues: {}, database }).pipe(Layer.provide(Client))
)
// @ts-expect-error one of two kinds without a handler
export const half: Effect.Effect<never, unknown> = Layer.launch(
  Worker.layer({ jobs: [Charge, SendReceipt], queues: {}, database }).pipe(
    Layer.provide(SendReceiptLive),
    Layer.provide(Client)
  )
)
