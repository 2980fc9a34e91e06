/** What a body leaves behind must reach nobody: the pool's only connection is another's by the time it is sent. */
import type { SqlClient } from "@effect/sql"
import { Deferred, Effect } from "effect"
import type { Owned, Receipt } from "../../runtime/world.js"
import type { Case, OwnCase } from "./cases.js"
import type { DriverUnderTest } from "./driver.js"

type Settles = "fails" | "succeeds"
const settlings: ReadonlyArray<Settles> = ["fails", "succeeds"]

const after = {
  fails: { state: "failed", rows: 0, error: "BodyFailed" },
  succeeds: { state: "completed", rows: 1 }
} as const

/** How a statement is left behind: it may be sent once the promise is fulfilled. */
type Leave<Driver, Tx> = (driver: Driver, tx: Tx, tag: string, later: Promise<void>) => PromiseLike<unknown>

const leftBehind = <Tx, Driver extends DriverUnderTest<Tx>>(
  driver: Driver & DriverUnderTest<Tx>,
  job: Owned,
  direct: SqlClient.SqlClient,
  settles: Settles,
  leave: Leave<Driver, Tx>
): Effect.Effect<Receipt, unknown> =>
  Effect.gen(function* () {
    const borrowed = yield* Deferred.make<void>()
    const later = Effect.runPromise(Deferred.await(borrowed))
    const answers: Array<Promise<string>> = []
    const exit = yield* Effect.exit(
      driver.finalize(job, async (tx) => {
        await driver.write(tx, job.payload.tag)
        const left = Promise.resolve(leave(driver, tx, job.payload.tag, later)).then(
          () => "accepted",
          () => "refused"
        )
        answers.push(left)
        if (settles === "fails") await Promise.all([left, Promise.reject(new Error("one of the two fails"))])
      })
    )
    const tag = `the borrower after ${job.payload.tag}`
    const answer = yield* Effect.promise(() =>
      driver.transaction("read committed", async (tx) => {
        await driver.write(tx, tag)
        await Effect.runPromise(Deferred.succeed(borrowed, undefined))
        const [answer] = await Promise.all(answers)
        await driver.query(tx)("select 1", []) // whatever was sent has been answered by now
        return answer
      })
    )
    const [row] = yield* direct<{ n: number }>`select count(*)::int as n from application_rows where tag = ${tag}`
    if (row?.n !== 1) return yield* Effect.dieMessage("the borrower's own row is not there")
    if (answer !== "refused") return yield* Effect.dieMessage(`the statement was ${answer}`)
    return yield* exit
  })

/** For every driver: what its application writes with. */
export const leftBehindCases: ReadonlyArray<Case> = settlings.map((settles) => ({
  name: `a statement left behind by a body that ${settles} reaches nobody else's transaction`,
  contract: "C-13",
  handler: (driver, job, direct) =>
    leftBehind(driver, job, direct, settles, async ({ write }, tx, tag, later) => {
      await later
      await write(tx, tag)
    }),
  ...after[settles]
}))

/** For a driver that has other ways to send, or to hold back what it sends. */
export const leaves = <Tx, More>(
  what: string,
  leave: Leave<DriverUnderTest<Tx> & More, Tx>,
  when = settlings
): ReadonlyArray<OwnCase<DriverUnderTest<Tx> & More>> =>
  when.map((settles) => ({
    name: `${what} left behind by a body that ${settles} reaches nobody else's transaction`,
    contract: "C-13",
    handler: (driver, job, direct) => leftBehind(driver, job, direct, settles, leave),
    ...after[settles]
  }))

/** A nested transaction ends by a statement of the driver's own. After a success it may also fail the completion. */
export const leavesNested = <Tx>(): ReadonlyArray<OwnCase<DriverUnderTest<Tx>>> =>
  leaves<Tx, object>(
    "a nested transaction that fails,",
    (driver, tx, _, later) =>
      driver.nested(tx, async () => {
        await later
        throw new Error("only this much")
      }),
    ["fails"]
  )

/** Between the body's end and the connection's return to its pool. */
export const leavesAtOnce = <Tx>(when = settlings): ReadonlyArray<OwnCase<DriverUnderTest<Tx>>> =>
  leaves<Tx, object>(
    "a series of statements",
    async (driver, tx, tag) => {
      const sent: Array<Promise<unknown>> = []
      for (const until = performance.now() + 100; performance.now() < until;) {
        await new Promise((resolve) => setImmediate(resolve))
        sent.push(Promise.resolve().then(() => driver.write(tx, tag)))
        await Promise.race([Promise.allSettled(sent.slice(-1)), new Promise((resolve) => setTimeout(resolve, 1))])
      }
      await Promise.any(sent)
    },
    when
  )
