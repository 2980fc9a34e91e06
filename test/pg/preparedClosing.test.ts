/** What is prepared of a finalization, and where: never where somebody else's backend may answer. */
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import pg from "pg"
import { completionClosing, completionText, tokenValues } from "../../src/internal/completionCall.js"
import { sendBegin, sendClosing, type Told } from "../../src/internal/pgClient.js"
import { type Attempt, claim, enqueue, evidence, fileDatabase } from "./support.js"

const database = fileDatabase()

const answered = (send: (told: Told) => void) =>
  Effect.async<unknown, unknown>((resume) =>
    send((error, result) => resume(error === undefined || error === null ? Effect.succeed(result) : Effect.fail(error)))
  )

const lent = Effect.gen(function* () {
  const opened = yield* database
  const client = yield* Effect.acquireRelease(
    Effect.promise(async () => {
      const client = new pg.Client({ connectionString: opened.url })
      await client.connect()
      return client
    }),
    (client) => Effect.promise(() => client.end())
  )
  const session = yield* opened.session
  const prepared = Effect.promise(async () => {
    const { rows } = await client.query<{ name: string }>("select name from pg_prepared_statements order by name")
    return rows.map(({ name }) => name)
  })
  const attempts = Effect.fnUntraced(function* (n: number) {
    yield* enqueue(session, n)
    return yield* claim(session, { limit: n })
  })
  const finalize = Effect.fnUntraced(function* (attempt: Attempt, progress: string | null = null) {
    yield* answered((told) => sendBegin(client, 5_000, told))
    const values = [...tokenValues(attempt), progress]
    const text = progress === null ? completionClosing("awa")(attempt) : undefined
    const result = yield* answered((told) => sendClosing(client, text, { text: completionText("awa"), values }, told))
    expect(Array.isArray(result) ? result.at(-1) : result).toMatchObject({ command: "COMMIT" })
    expect(yield* evidence(session, [attempt])).toEqual([["closed", "completed"]])
  })
  return { client, session, prepared, attempts, finalize }
})

const both = ["effect_awa_commit", "effect_awa_complete"]

describe("the end of a finalization", () => {
  it.scopedLive("is prepared once on a connection of its own backend, also after one that failed", () =>
    Effect.gen(function* () {
      const { attempts, client, finalize, prepared } = yield* lent
      const [first, second, third] = yield* attempts(3)
      if (first === undefined || second === undefined || third === undefined) throw new Error("three attempts")
      yield* finalize(first)
      expect(yield* prepared).toEqual(both)
      const again = yield* Effect.flip(finalize(first))
      expect(again).toMatchObject({ code: "WA001" })
      yield* Effect.promise(() => client.query("rollback"))
      yield* finalize(second)
      yield* finalize(third, JSON.stringify({ at: 3 }))
      expect(yield* prepared).toEqual(both)
    })
  )

  it.scopedLive("is prepared on no connection that a pooler may give another backend, with progress neither", () =>
    Effect.gen(function* () {
      const { attempts, client, finalize, prepared } = yield* lent
      Object.assign(client, { processID: 1 }) // as a pooler greets: with a key of its own
      const [first, second] = yield* attempts(2)
      if (first === undefined || second === undefined) throw new Error("two attempts")
      yield* finalize(first)
      yield* finalize(second, JSON.stringify({ at: 2 }))
      expect(yield* prepared).toEqual([])
    })
  )

  it.scopedLive("is prepared no more when somebody has taken a prepared statement away", () =>
    Effect.gen(function* () {
      const { attempts, client, finalize, prepared } = yield* lent
      const [first, second] = yield* attempts(2)
      if (first === undefined || second === undefined) throw new Error("two attempts")
      yield* finalize(first)
      yield* Effect.promise(() => client.query("deallocate all"))
      const robbed = yield* Effect.flip(finalize(second))
      expect(robbed).toMatchObject({ code: "26000" })
      yield* Effect.promise(() => client.query("rollback"))
      yield* finalize(second)
      expect(yield* prepared).toEqual([])
    })
  )
})
