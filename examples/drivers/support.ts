/**
 * What the examples of the drivers have in common: a database, a worker, and the account of what is in the database afterwards.
 *
 * Each example tells the same story in its driver's words. An invoice is issued in one transaction with the job that charges it;
 * the charge marks the invoice as paid, enqueues its receipt and completes its job in another one.
 */
import { randomBytes } from "node:crypto"
import { NodeRuntime } from "@effect/platform-node"
import { PgClient } from "@effect/sql-pg"
import { Cause, Config, Effect, Layer, Logger, LogLevel, Option, Redacted, Schedule, Schema, type Scope } from "effect"
import { type Handlers, Job, Migrations } from "effect-awa"
import * as EmbeddedPostgres from "effect-awa/layers/EmbeddedPostgres"
import * as WorkerLayer from "effect-awa/layers/Worker"
import pg from "pg"

/** Completed by its handler. Fails for good at once, so that an example need not wait for the next attempt. */
export const Charge = Job.make("charge", {
  payload: Schema.Struct({ invoice: Schema.Int, cents: Schema.Int }),
  maxAttempts: 1
})

/** Only enqueued here: no worker serves its queue. */
export const SendReceipt = Job.make("send-receipt", {
  payload: Schema.Struct({ invoice: Schema.Int }),
  queue: "mail"
})

/** A rule of the business, kept inside the transaction: what it refuses is rolled back. */
export const approve = (cents: number): void => {
  if (cents > 100_000) throw new Error("an amount above 1000.00 needs a second signature")
}

export class ExampleFailed extends Schema.TaggedError<ExampleFailed>()("ExampleFailed", {
  message: Schema.String
}) {}

/** What the database must say of an invoice; undefined where there is no row, or no job. */
export interface Expected {
  readonly state: "open" | "paid" | undefined
  readonly charge: "available" | "completed" | "failed" | undefined
  readonly receipts: number
}

/** What a driver does by a promise, or by an effect. */
export type Action<R> = (() => PromiseLike<unknown>) | Effect.Effect<unknown, unknown, R>

export interface World {
  /** The database, with effect-awa installed; the example makes its own table `invoices (id integer primary key, state text)`. */
  readonly url: string
  /** Says what is done, and does it. */
  readonly step: <R = never>(text: string, action: Action<R>) => Effect.Effect<void, ExampleFailed, R>
  /** The same of a transaction that must end in an error. */
  readonly rollsBack: <R = never>(text: string, action: Action<R>) => Effect.Effect<void, ExampleFailed, R>
  /** Runs a worker with this handler of `Charge` until it has nothing left to do. */
  readonly work: <E>(handler: Layer.Layer<Handlers.Handles<"charge">, E>) => Effect.Effect<void, ExampleFailed>
  /** Reads back by SQL on a connection of its own, and fails when it is not so. */
  readonly check: (invoice: number, expected: Expected) => Effect.Effect<void, ExampleFailed>
}

const failed = (what: string) => (cause: unknown) =>
  new ExampleFailed({ message: `${what}: ${cause instanceof Error ? (cause.stack ?? cause.message) : String(cause)}` })

const attempt = <A>(what: string, run: () => PromiseLike<A>): Effect.Effect<A, ExampleFailed> =>
  Effect.tryPromise({ try: async () => run(), catch: failed(what) })

const act = <R>(what: string, action: Action<R>): Effect.Effect<unknown, ExampleFailed, R> =>
  Effect.isEffect(action) ? Effect.mapError(action, failed(what)) : attempt(what, action)

const say = (line: string) => Effect.sync(() => console.log(line))

const connect = (url: string) =>
  Effect.acquireRelease(
    attempt("connect", async () => {
      const client = new pg.Client({ connectionString: url })
      client.on("error", () => undefined) // the statement that meets it says so
      await client.connect()
      return client
    }),
    (client) => Effect.promise(() => client.end())
  )

/** A database of its own: on an embedded server that ends with the example, or on the server that DATABASE_URL names. */
const database = Effect.gen(function* () {
  const given = yield* Config.option(Config.redacted("DATABASE_URL"))
  if (Option.isNone(given)) return Redacted.value((yield* EmbeddedPostgres.make()).url("postgres"))
  const server = yield* connect(Redacted.value(given.value))
  const name = `awa_example_${randomBytes(4).toString("hex")}`
  yield* Effect.acquireRelease(
    attempt("create a database", () => server.query(`create database ${name}`)),
    () => Effect.promise(() => server.query(`drop database ${name} with (force)`))
  )
  const url = new URL(Redacted.value(given.value))
  url.pathname = `/${name}`
  return url.href
})

const makeWork =
  (url: string, direct: pg.Client): World["work"] =>
  (handler) => {
    const idle = attempt("look at the jobs", () =>
      direct.query("select from awa.jobs where kind = 'charge' and state in ('available', 'running')")
    ).pipe(Effect.repeat({ until: ({ rowCount }) => rowCount === 0, schedule: Schedule.spaced("20 millis") }))
    const worker = WorkerLayer.layer({
      jobs: [Charge],
      queues: { default: { concurrency: 4 } },
      database: Config.succeed(Redacted.make(url)),
      runtimeConnections: 3
    }).pipe(Layer.provide([handler, PgClient.layer({ url: Redacted.make(url), maxConnections: 2 })]))
    return idle.pipe(
      Effect.timeoutFail({
        duration: "30 seconds",
        onTimeout: () => new ExampleFailed({ message: "the charges were not done in 30 seconds" })
      }),
      Effect.provide(worker),
      Effect.catchAllCause((cause) => new ExampleFailed({ message: Cause.pretty(cause) })),
      Effect.zipLeft(say("- a worker has charged what there was to charge"))
    )
  }

const Found = Schema.Struct({
  state: Schema.NullOr(Schema.String),
  charge: Schema.NullOr(Schema.String),
  receipts: Schema.Number
})

const makeCheck =
  (direct: pg.Client): World["check"] =>
  (invoice, expected) =>
    Effect.gen(function* () {
      const { rows } = yield* attempt("read back", () =>
        direct.query<Record<string, unknown>>(
          `select (select state from invoices where id = $1) as state,
                  (select state from awa.jobs where kind = 'charge' and args ->> 'invoice' = $1::text) as charge,
                  (select count(*)::int from awa.jobs where kind = 'send-receipt' and args ->> 'invoice' = $1::text) as receipts`,
          [invoice]
        )
      )
      const found = yield* Effect.mapError(Schema.decodeUnknown(Found)(rows[0]), failed("read back"))
      const tell = ({ charge, receipts, state }: typeof found | Expected) =>
        `invoice ${invoice}: ${state ?? "no row"}, charge: ${charge ?? "no job"}, receipts: ${receipts}`
      if (tell(found) !== tell(expected)) {
        return yield* new ExampleFailed({ message: `expected ${tell(expected)}; found ${tell(found)}` })
      }
      yield* say(`  ok ${tell(found)}`)
    })

/** Runs an example; the process exits with 1 when what it expects is not so. */
export const runExample = <E>(name: string, example: (world: World) => Effect.Effect<void, E, Scope.Scope>): void => {
  const program = Effect.gen(function* () {
    const url = yield* database
    yield* Migrations.migrate({ url: Redacted.make(url) })
    const direct = yield* connect(url)
    yield* say(`${name}: an invoice and its charge`)
    yield* example({
      url,
      step: (text, action) => Effect.zipRight(say(`- ${text}`), Effect.asVoid(act(text, action))),
      rollsBack: (text, action) =>
        act(text, action).pipe(
          Effect.matchEffect({
            onFailure: () => say(`- ${text}: rolled back`),
            onSuccess: () => new ExampleFailed({ message: `${text}: it committed` })
          })
        ),
      work: makeWork(url, direct),
      check: makeCheck(direct)
    }).pipe(Effect.scoped) // the driver's connections end before the database does
    yield* say(`${name}: as it should be`)
  })
  NodeRuntime.runMain(Effect.scoped(program).pipe(Logger.withMinimumLogLevel(LogLevel.Warning)))
}
