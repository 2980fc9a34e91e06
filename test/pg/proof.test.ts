/**
 * `meta` remembers that it was looked at whose database this is, so that a completion need not look again (C-34). The proof may
 * only save time: what is refused and what is accepted is the same with it, without it, and with one that does not fit.
 */
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { inject } from "vitest"
import type { Session } from "./database.js"
import { at, connect, createDatabase, freshName } from "./database.js"
import { begin, claim, complete, completeMany, enqueue, fault, fileDatabase, only } from "./support.js"

const database = fileDatabase({ proven: false })

const running = (session: Session, n = 1) => Effect.flatMap(enqueue(session, n), () => claim(session, { limit: n }))

const adopt = (session: Session) => session.value("select awa.adopt_database()")

const beatRuntime = (session: Session) => session.value("select awa.beat_runtime(null, 'r', 1, '{}')")

const forget = (session: Session) => session.script("update awa.meta set proven_start = null, proven_path = null")

const proof = (session: Session) =>
  Effect.map(
    session.rows(`select case when proven_start is null and proven_path is null then 'none'
      when proven_start = pg_postmaster_start_time() and proven_path = pg_relation_filepath('awa.meta') then 'fits' else 'does not fit' end as proof,
      xmin::text as writer from awa.meta`),
    only
  )

const isProven = Effect.fn(function* (session: Session) {
  return (yield* proof(session))["proof"]
})

/** How often a completion has to look at all in full; it is rolled back. */
const fullChecks = Effect.fn(function* (session: Session) {
  const attempt = only(yield* running(session))
  // counts of earlier transactions stay until they are reported
  const calls = session.value(
    "select coalesce(sum(calls), 0)::int from pg_stat_xact_user_functions where schemaname = 'awa' and funcname = 'require_token'"
  )
  yield* begin(session)
  yield* session.script("set local track_functions = 'pl'")
  const before = yield* calls
  yield* complete(session, attempt)
  const after = yield* calls
  yield* session.script("rollback")
  return Number(after) - Number(before)
})

describe("the proof of whose database this is", () => {
  it.scopedLive("spares a completion the full check", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* forget(session)
      expect(yield* fullChecks(session)).toBe(1)
      expect(yield* adopt(session)).toBe("ours")
      expect(yield* isProven(session)).toBe("fits")
      expect(yield* fullChecks(session)).toBe(0)
    })
  )

  it.scopedLive("is none in a copy of the database, which refuses tokens until it is adopted", () =>
    Effect.gen(function* () {
      const db = yield* database
      const attempt = yield* Effect.scoped(
        Effect.gen(function* () {
          const session = yield* db.session
          yield* adopt(session)
          return only(yield* running(session))
        })
      )
      const server = inject("postgresUrl")
      const copy = freshName("proven")
      yield* createDatabase(server, copy, db.name)
      const there = yield* connect(at(server, copy))
      expect(yield* isProven(there)).toBe("does not fit")
      yield* fault(complete(there, attempt), "WA003")
      yield* beatRuntime(there)
      expect(yield* isProven(there)).toBe("does not fit")
      yield* fault(complete(there, attempt), "WA003")
      expect(yield* adopt(there)).toBe("adopted")
      expect(yield* isProven(there)).toBe("fits")
      yield* fault(complete(there, attempt), "WA003")
      yield* complete(there, only(yield* running(there)))
      yield* complete(yield* db.session, attempt)
    })
  )

  for (const [name, spoil] of [
    ["of another start", "proven_start = proven_start + interval '1 microsecond'"],
    ["of another file", "proven_path = regexp_replace(proven_path, '^base/', 'base/1')"],
    ["without a start", "proven_start = null"],
    ["without a file", "proven_path = null"]
  ] as const) {
    it.scopedLive(`${name} refuses nothing, and accepts nothing`, () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        yield* forget(session)
        yield* adopt(session)
        const attempt = only(yield* running(session))
        yield* session.script(`update awa.meta set ${spoil}`)
        for (const stored of ["system_identifier", "database_oid"]) {
          yield* begin(session)
          yield* session.script(`update awa.meta set ${stored} = ${stored}::bigint + 1`)
          yield* session.script("savepoint one")
          yield* fault(complete(session, attempt), "WA003")
          yield* session.script("rollback to one")
          yield* fault(completeMany(session, [attempt]), "WA003")
          yield* session.script("rollback")
        }
        yield* complete(session, attempt)
        yield* completeMany(session, yield* running(session, 2))
      })
    )
  }

  it.scopedLive("is written by the first beat that misses it, and by no other", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      for (const lose of [
        forget(session),
        session.script("update awa.meta set proven_start = proven_start - interval '1 day'"), // the server was restarted
        session.script("vacuum full awa.meta")
      ]) {
        yield* lose
        expect(yield* isProven(session)).not.toBe("fits")
        yield* complete(session, only(yield* running(session)))
        yield* beatRuntime(session)
        const written = yield* proof(session)
        expect(written["proof"]).toBe("fits")
        yield* beatRuntime(session)
        expect(yield* adopt(session)).toBe("ours")
        yield* complete(session, only(yield* running(session)))
        expect(yield* proof(session)).toEqual(written)
      }
    })
  )

  it.scopedLive("waits for nobody who holds the row of meta", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, holder] = yield* Effect.all([db.session, db.session])
      yield* forget(session)
      yield* begin(holder)
      yield* holder.rows("select from awa.meta for update")
      yield* begin(session)
      yield* session.script("set local lock_timeout = '500ms'")
      yield* beatRuntime(session)
      expect(yield* adopt(session)).toBe("ours")
      yield* session.script("commit")
      expect(yield* isProven(session)).toBe("none")
      yield* holder.script("commit")
      yield* beatRuntime(session)
      expect(yield* isProven(session)).toBe("fits")
    })
  )

  it.scopedLive("fails no beat under a snapshot that is older than the row of meta", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, other] = yield* Effect.all([db.session, db.session])
      yield* forget(session)
      yield* begin(session, "repeatable read")
      yield* session.rows("select from awa.meta")
      yield* forget(other)
      yield* beatRuntime(session)
      yield* session.script("commit")
      expect(yield* isProven(session)).toBe("none")
    })
  )
})
