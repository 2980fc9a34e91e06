/** Cases whose outcome depends on what a driver tells, and what it hides. */
import { Effect } from "effect"
import { Driver } from "effect-awa"
import { TransactionUnavailable } from "effect-awa/JobError"
import type { Owned } from "../../runtime/world.js"
import { attempt, Ended, type OwnCase } from "./cases.js"
import type { DriverUnderTest } from "./driver.js"
import type { PgUnderTest } from "./drivers/pg.js"

const divides = (query: Driver.Query) => {
  // after the completion is sent, and before its answer lets COMMIT follow
  setImmediate(() => void query("select 1 / 0", []).catch(() => undefined))
}

/**
 * COMMIT of an aborted transaction answers ROLLBACK, without an error (C-42). A driver that does not read the answer hides it:
 * the handler has its receipt, and the runtime finds the attempt open.
 */
export const failsUnawaited = <Tx>(): OwnCase<DriverUnderTest<Tx>> => ({
  name: "a statement that fails unawaited after the completion: the driver hides it",
  contract: "C-42",
  handler: (driver, job) =>
    attempt(() =>
      driver.transaction("read committed", async (tx) => {
        const query = driver.query(tx)
        await Driver.expectCompletion(query, job)
        await driver.write(tx, job.payload.tag)
        divides(query)
        return Driver.completeInTx(query, job, { expect: false })
      })
    ),
  state: "failed",
  rows: 0,
  error: "AttemptFailed",
  events: ["Protocol event: the handler returned a receipt and its completion is not there"]
})

/** The adapter reads it: of a statement that goes past the transaction that it gave the body, by the client itself. */
export const noticesRollback = <Tx>(): OwnCase<DriverUnderTest<Tx> & { readonly pastAdapter: Driver.Query }> => ({
  name: "a statement that fails unawaited after the completion: the driver notices",
  contract: "C-42",
  handler: (driver, job) =>
    driver.finalize(job, async (tx) => {
      await driver.write(tx, job.payload.tag)
      divides(driver.pastAdapter)
    }),
  state: "failed",
  rows: 0,
  error: "RolledBack"
})

/** Without an expectation COMMIT is no failure where a body makes it by itself; the adapter sees that it did. */
export const seesItsEnd = (): ReadonlyArray<OwnCase<PgUnderTest>> => [
  {
    name: "a body that ends its transaction, whose completion was not expected",
    contract: "C-41",
    handler: (driver, job) =>
      driver.unexpected(job, async (client) => {
        await driver.write(client, job.payload.tag)
        await client.query("rollback")
      }),
    state: "failed",
    rows: 0,
    error: "CompletionMissing"
  },
  {
    name: "commit, where the completion was not expected",
    contract: "C-12",
    handler: (driver, job) =>
      driver.unexpected(job, (client) => Promise.resolve(driver.write(client, job.payload.tag))),
    state: "completed",
    rows: 1
  }
]

/** A refusal that the adapter makes before SQL: its reason is not the server's. */
export const refusedBeforeSql = <Under>(
  where: string,
  reason: string,
  run: (driver: Under, job: Owned) => Promise<unknown>
): OwnCase<Under> => ({
  name: `refused before SQL: ${where}`,
  contract: "C-41",
  handler: (driver, job) =>
    attempt(async () => {
      await run(driver, job).catch((error: unknown) => {
        if (!(error instanceof TransactionUnavailable) || error.cause !== undefined) throw error
        throw new Ended({ with: error.reason })
      })
      throw new Error("it was not refused")
    }),
  state: "failed",
  rows: 0,
  error: "Ended",
  message: `{ "with": ${JSON.stringify(reason)} }`
})

/** A driver that tells only of the ROLLBACK that failed too would hide why. */
export const failsOnLostConnection = <Tx>(): OwnCase<DriverUnderTest<Tx>> => ({
  name: "a body that fails on a connection that has ended",
  contract: "C-14",
  handler: (driver, job) =>
    driver.finalize(job, async (tx) => {
      await driver
        .query(tx)("select pg_terminate_backend(pg_backend_pid())", [])
        .catch(() => undefined)
      throw new Ended({ with: "the application's own reason" })
    }),
  state: "failed",
  rows: 0,
  error: "BodyFailed",
  message: 'The transaction was rolled back: { "with": "the application\'s own reason" }'
})

/** The body would wait for ever. */
export const endsUnderBody = <Tx>(): OwnCase<DriverUnderTest<Tx>> => ({
  name: "a connection that the server ends under a waiting body",
  contract: "C-17",
  handler: (driver, job, direct) =>
    driver.finalize(job, async (tx) => {
      await driver.write(tx, job.payload.tag)
      const [backend] = await driver.query(tx)("select pg_backend_pid()::text as pid", [])
      await Effect.runPromise(direct`select pg_terminate_backend(${String(backend?.["pid"])}::int)`)
      await new Promise(() => {})
    }),
  state: "failed",
  rows: 0,
  error: "BodyFailed",
  message: "The transaction was rolled back: terminating connection due to administrator command (57P01)"
})
