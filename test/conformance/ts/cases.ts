/** What every driver's adapter must do, case by case, and what the job and the application's row are afterwards. */
import { Deferred, Effect, Fiber, Schema } from "effect"
import type { SqlClient } from "@effect/sql"
import { Driver } from "effect-awa"
import { TransactionUnavailable } from "effect-awa/JobError"
import { eventually, rescueNow } from "../../runtime/support.js"
import { Notify, type Owned, type Receipt } from "../../runtime/world.js"
import type { DriverUnderTest, Isolation } from "./driver.js"
import { leftBehindCases } from "./leftBehind.js"

/** What a case's handler ended with, when it is none of the errors that the contract names. */
export class Ended extends Schema.TaggedError<Ended>()("Ended", { with: Schema.String }) {}

interface Expectation {
  readonly name: string
  readonly contract: string
  readonly state: "completed" | "failed"
  readonly rows: 0 | 1
  /** The error that the failed job shows. */
  readonly error?: string
  readonly message?: string
  /** How many jobs the case enqueued on the way. */
  readonly enqueued?: number
  /** The protocol events that the runtime logs of it; none unless said otherwise. */
  readonly events?: ReadonlyArray<string>
}

export interface Case extends Expectation {
  readonly handler: <Tx>(
    driver: DriverUnderTest<Tx>,
    job: Owned,
    direct: SqlClient.SqlClient
  ) => Effect.Effect<Receipt, unknown>
}

/** A case of one driver, for what is particular to it. */
export interface OwnCase<Driver> extends Expectation {
  readonly handler: (driver: Driver, job: Owned, direct: SqlClient.SqlClient) => Effect.Effect<Receipt, unknown>
}

export const attempt = (body: () => Promise<Receipt>): Effect.Effect<Receipt, unknown> =>
  Effect.tryPromise({ try: body, catch: (error) => error })

/** The attempt is ended behind its handler's back. */
const goneStale = (direct: SqlClient.SqlClient) => Effect.orDie(rescueNow(direct))

const levels: ReadonlyArray<Isolation> = ["read committed", "repeatable read", "serializable"]

const marks = 'it\'s \\ \\\' \\? ? ?? ::text :name @p1 $1 $$ $x$ {"a": "b"} /* -- */ \u{1F600}'

const commits: ReadonlyArray<Case> = [
  {
    name: "commit",
    contract: "C-12, C-13",
    handler: (driver, job) => driver.finalize(job, (tx) => driver.write(tx, job.payload.tag)),
    state: "completed",
    rows: 1
  },
  ...levels.map((isolation): Case => ({
    name: `commit of the driver's own transaction in ${isolation}`,
    contract: "C-12",
    handler: (driver, job) =>
      attempt(() =>
        driver.transaction(isolation, async (tx) => {
          await Driver.expectCompletion(driver.query(tx), job)
          await driver.write(tx, job.payload.tag)
          return Driver.completeInTx(driver.query(tx), job)
        })
      ),
    state: "completed",
    rows: 1
  })),
  {
    name: "completion in a nested transaction that is kept",
    contract: "C-41",
    handler: (driver, job) =>
      attempt(() =>
        driver.transaction("read committed", async (tx) => {
          await Driver.expectCompletion(driver.query(tx), job)
          await driver.write(tx, job.payload.tag)
          const receipts: Array<Receipt> = []
          await driver.nested(tx, async (inner) => {
            receipts.push(await Driver.completeInTx(driver.query(inner), job))
          })
          const [receipt] = receipts
          if (receipt === undefined) throw new Error("no receipt")
          return receipt
        })
      ),
    state: "completed",
    rows: 1
  },
  {
    name: "a second transaction after one that was rolled back",
    contract: "C-12",
    handler: (driver, job) =>
      attempt(async () => {
        const once = (isLast: boolean) =>
          driver.transaction("read committed", async (tx) => {
            await driver.write(tx, job.payload.tag)
            const receipt = await Driver.completeInTx(driver.query(tx), job)
            if (!isLast) throw new Error("once more")
            return receipt
          })
        await once(false).catch(() => undefined)
        return once(true)
      }),
    state: "completed",
    rows: 1
  },
  {
    name: "enqueue in the same transaction",
    contract: "C-13",
    handler: (driver, job) =>
      driver.finalize(job, async (tx) => {
        await driver.write(tx, job.payload.tag)
        await Driver.enqueueAll(driver.query(tx), Notify, [{ tag: `${job.payload.tag} one` }, { tag: "two" }])
      }),
    state: "completed",
    rows: 1,
    enqueued: 2
  },
  {
    // whoever writes values into the text of a statement must do it well
    name: "a payload with every mark that a driver could take for its own",
    contract: "C-12",
    handler: (driver, job, direct) =>
      Effect.gen(function* () {
        const receipt = yield* driver.finalize(job, async (tx) => {
          await driver.write(tx, job.payload.tag)
          await Driver.enqueue(driver.query(tx), Notify, { tag: marks })
        })
        const [row] = yield* direct<{
          n: number
        }>`select count(*)::int as n from awa.jobs where args ->> 'tag' = ${marks}`
        return row?.n === 1 ? receipt : yield* Effect.dieMessage("the payload was changed on its way")
      }),
    state: "completed",
    rows: 1,
    enqueued: 1
  }
]

const rollbacks: ReadonlyArray<Case> = [
  {
    // the pool has one connection
    name: "a body that never ends, and one after it on the same connection pool",
    contract: "C-40",
    handler: (driver, job) =>
      driver
        .finalize(
          job,
          async (tx) => {
            await driver.write(tx, job.payload.tag)
            await new Promise(() => {})
          },
          { maximumDuration: "1 second" }
        )
        .pipe(
          Effect.catchTag("TransactionTooLong", () => driver.finalize(job, (tx) => driver.write(tx, job.payload.tag)))
        ),
    state: "completed",
    rows: 1
  },
  {
    name: "a body that goes on writing after its transaction was given up",
    contract: "C-40, C-41",
    handler: (driver, job) =>
      Effect.gen(function* () {
        const ended = yield* Deferred.make<void>()
        const finalized = driver.finalize(
          job,
          async (tx, signal) => {
            await driver.write(tx, job.payload.tag)
            // the first write can take longer than the transaction may
            if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve))
            // until it is refused: one statement that came through after ROLLBACK would be there to stay
            try {
              for (const until = performance.now() + 4_000; performance.now() < until;) {
                await driver.write(tx, job.payload.tag)
              }
            } finally {
              await Effect.runPromise(Deferred.succeed(ended, undefined))
            }
          },
          { maximumDuration: "1 second" }
        )
        return yield* Effect.ensuring(finalized, Deferred.await(ended))
      }),
    state: "failed",
    rows: 0,
    error: "TransactionTooLong"
  },
  {
    // what it asks for is refused, and it never hears
    name: "a body that goes on writing for ever, and one after it on the same connection pool",
    contract: "C-40",
    handler: (driver, job) =>
      Effect.gen(function* () {
        let goesOn = true
        const forever = driver.finalize(
          job,
          async (tx) => {
            while (goesOn) {
              await Promise.allSettled([driver.write(tx, job.payload.tag)])
              await new Promise((resolve) => setTimeout(resolve, 20))
            }
          },
          { maximumDuration: "1 second" }
        )
        return yield* Effect.ensuring(
          Effect.catchTag(forever, "TransactionTooLong", () =>
            driver.finalize(job, (tx) => driver.write(tx, job.payload.tag))
          ),
          Effect.sync(() => {
            goesOn = false
          })
        )
      }),
    state: "completed",
    rows: 1
  },
  {
    name: "the server's own limits",
    contract: "C-40",
    handler: (driver, job) =>
      driver.finalize(
        job,
        async (tx) => {
          const [row] = await driver.query(tx)(
            `select current_setting('statement_timeout') as statement, current_setting('idle_in_transaction_session_timeout') as idle,
               case when current_setting('server_version_num')::int < 170000 then '21s' else current_setting('transaction_timeout') end as whole`,
            []
          )
          throw new Ended({ with: JSON.stringify(row) })
        },
        { maximumDuration: "20 seconds" }
      ),
    state: "failed",
    rows: 0,
    error: "BodyFailed",
    message:
      'The transaction was rolled back: { "with": "{\\"statement\\":\\"21s\\",\\"idle\\":\\"21s\\",\\"whole\\":\\"21s\\"}" }'
  },
  {
    name: "rollback, of an enqueue too",
    contract: "C-13",
    handler: (driver, job) =>
      driver.finalize(job, async (tx) => {
        await driver.write(tx, job.payload.tag)
        await Driver.enqueue(driver.query(tx), Notify, { tag: job.payload.tag })
        throw new Error("the application changed its mind")
      }),
    state: "failed",
    rows: 0,
    error: "BodyFailed"
  },
  {
    name: "rollback after the completion",
    contract: "C-12",
    handler: (driver, job) =>
      attempt(() =>
        driver.transaction("read committed", async (tx) => {
          await driver.write(tx, job.payload.tag)
          await Driver.completeInTx(driver.query(tx), job)
          throw new Ended({ with: "rollback" })
        })
      ),
    state: "failed",
    rows: 0,
    error: "Ended"
  },
  {
    name: "a payload that cannot be stored is refused before SQL",
    contract: "F-19",
    handler: (driver, job) =>
      driver.finalize(job, async (tx) => {
        await driver.write(tx, job.payload.tag)
        await Driver.enqueue(driver.query(tx), Notify, { tag: "\u0000" })
      }),
    state: "failed",
    rows: 0,
    error: "BodyFailed"
  }
]

const stale: ReadonlyArray<Case> = [
  {
    name: "stale",
    contract: "C-14",
    handler: (driver, job, direct) =>
      driver.finalize(job, async (tx) => {
        await driver.write(tx, job.payload.tag)
        await Effect.runPromise(goneStale(direct))
      }),
    state: "failed",
    rows: 0
  },
  {
    name: "double",
    contract: "C-14",
    handler: (driver, job) =>
      attempt(() =>
        driver.transaction("read committed", async (tx) => {
          await driver.write(tx, job.payload.tag)
          await Driver.completeInTx(driver.query(tx), job)
          return Driver.completeInTx(driver.query(tx), job)
        })
      ),
    state: "failed",
    rows: 0,
    error: "StaleAttempt"
  },
  ...[true, false].map((expect): Case => ({
    // without the expectation this is the hole that C-41 closes
    name: `swallowed by a nested transaction: COMMIT ${expect ? "fails" : "keeps the rows, where nothing was expected"}`,
    contract: "C-41",
    handler: (driver, job, direct) =>
      Effect.zipRight(
        goneStale(direct),
        attempt(async () => {
          await driver.transaction("read committed", async (tx) => {
            if (expect) await Driver.expectCompletion(driver.query(tx), job)
            await driver.write(tx, job.payload.tag)
            await driver
              .nested(tx, async (inner) => {
                await Driver.completeInTx(driver.query(inner), job, { expect })
              })
              .catch(() => undefined)
          })
          throw new Ended({ with: "COMMIT" })
        })
      ),
    state: "failed",
    rows: expect ? 0 : 1
  })),
  {
    name: "swallowed in the second transaction of a handler: COMMIT fails",
    contract: "C-41",
    handler: (driver, job, direct) =>
      attempt(async () => {
        await driver
          .transaction("read committed", async (tx) => {
            await Driver.expectCompletion(driver.query(tx), job)
            throw new Error("once more")
          })
          .catch(() => undefined)
        await Effect.runPromise(goneStale(direct))
        await driver.transaction("read committed", async (tx) => {
          await driver.write(tx, job.payload.tag)
          // it was the first one that was told: this one is inside a savepoint when it would be
          await driver
            .nested(tx, async (inner) => {
              await Driver.completeInTx(driver.query(inner), job)
            })
            .catch((error: unknown) => {
              if (error instanceof TransactionUnavailable) throw error
            })
        })
        throw new Ended({ with: "COMMIT" })
      }),
    state: "failed",
    rows: 0
  },
  {
    name: "completion rolled back with its savepoint: COMMIT fails",
    contract: "C-41",
    handler: (driver, job) =>
      attempt(() => {
        const receipts: Array<Receipt> = []
        return driver.transaction("read committed", async (tx) => {
          await Driver.expectCompletion(driver.query(tx), job)
          await driver.write(tx, job.payload.tag)
          await driver
            .nested(tx, async (inner) => {
              receipts.push(await Driver.completeInTx(driver.query(inner), job))
              throw new Error("only this much")
            })
            .catch(() => undefined)
          const [receipt] = receipts
          if (receipt === undefined) throw new Error("no receipt")
          return receipt
        })
      }),
    state: "failed",
    rows: 0
  }
]

const refused: ReadonlyArray<Case> = [
  {
    name: "a body that commits by itself",
    contract: "C-41",
    handler: (driver, job) =>
      driver.finalize(job, async (tx) => {
        await driver.write(tx, job.payload.tag)
        await driver.query(tx)("commit", [])
        await driver.query(tx)("begin", [])
      }),
    state: "failed",
    rows: 0
  },
  {
    name: "a body that takes too long",
    contract: "C-40",
    handler: (driver, job) =>
      driver.finalize(
        job,
        async (tx, signal) => {
          await driver.write(tx, job.payload.tag)
          await new Promise((resolve) => signal.addEventListener("abort", resolve))
        },
        { maximumDuration: "1 second" }
      ),
    state: "failed",
    rows: 0,
    error: "TransactionTooLong"
  },
  {
    name: "a body whose handler is interrupted",
    contract: "C-17",
    handler: (driver, job) =>
      Effect.gen(function* () {
        const inBody = yield* Deferred.make<void>()
        const finalizing = yield* Effect.fork(
          driver.finalize(job, async (tx, signal) => {
            await driver.write(tx, job.payload.tag)
            const aborted = new Promise((resolve) => signal.addEventListener("abort", resolve))
            await Effect.runPromise(Deferred.succeed(inBody, undefined))
            await aborted
          })
        )
        yield* Deferred.await(inBody)
        yield* Fiber.interrupt(finalizing)
        return yield* new Ended({ with: "interruption" })
      }),
    state: "failed",
    rows: 0,
    error: "Ended"
  },
  {
    name: "completion inside a savepoint that nothing was expected before",
    contract: "C-41",
    handler: (driver, job) =>
      attempt(() =>
        driver.transaction("read committed", async (tx) => {
          await driver.write(tx, job.payload.tag)
          const receipts: Array<Receipt> = []
          await driver.nested(tx, async (inner) => {
            receipts.push(await Driver.completeInTx(driver.query(inner), job))
          })
          throw new Ended({ with: "the savepoint was not noticed" })
        })
      ),
    state: "failed",
    rows: 0,
    error: "TransactionUnavailable"
  },
  {
    name: "completion outside a transaction",
    contract: "C-12",
    handler: (driver, job) => attempt(() => Driver.completeInTx(driver.autocommit, job)),
    state: "failed",
    rows: 0,
    error: "TransactionUnavailable"
  },
  {
    name: "a forged token",
    contract: "C-11",
    handler: (driver, job) =>
      attempt(() =>
        driver.transaction("read committed", async (tx) => {
          await driver.write(tx, job.payload.tag)
          return Driver.completeInTx(driver.query(tx), { kind: job.kind, token: { ...job.token } })
        })
      ),
    state: "failed",
    rows: 0,
    error: "TokenRejected"
  },
  {
    name: "parked on a callback",
    contract: "C-14",
    handler: (driver, job, direct) =>
      Effect.gen(function* () {
        const callback = yield* job.callback({ timeout: "1 minute", result: Schema.Unknown })
        const waiting = yield* Effect.fork(callback.await)
        yield* eventually(
          "the wait",
          Effect.map(
            direct<{
              n: number
            }>`select count(*)::int as n from awa.leases where state = 'waiting' and job_id = ${job.jobId}`,
            ([row]) => row?.n === 1
          )
        )
        return yield* Effect.ensuring(
          driver.finalize(job, (tx) => driver.write(tx, job.payload.tag)),
          Fiber.interrupt(waiting)
        )
      }),
    state: "failed",
    rows: 0,
    error: "AttemptParked"
  }
]

export const cases: ReadonlyArray<Case> = [...commits, ...rollbacks, ...stale, ...refused, ...leftBehindCases]
