import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Session } from "./database.js"
import { begin, bigints, claim, claimIds, column, enqueue, fault, fileDatabase, only } from "./support.js"

const database = fileDatabase()

const insertJobs = (session: Session, jobs: unknown) =>
  session
    .rows("select job_id as id from awa.insert_jobs($1::text::jsonb)", [JSON.stringify(jobs)])
    .pipe(Effect.map((rows) => bigints(column(rows, "id"))))

const insertJob = (session: Session, opts: unknown, queue = "q", kind = "k") =>
  session.value("select awa.insert_job($1, '{}', $2, $3::text::jsonb)", [kind, queue, JSON.stringify(opts)])

const job = (part: Record<string, unknown>) => ({ kind: "k", queue: "q", args: {}, opts: {}, ...part })

const written = (session: Session) =>
  session.value("select (select count(*) from awa.ready_entries) + (select count(*) from awa.deferred_jobs)")

describe("insert_jobs", () => {
  it.scopedLive("names the job, the field and the rule, and writes nothing", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const long = "x".repeat(1024 * 1024)
      const cases: ReadonlyArray<readonly [unknown, string]> = [
        ["text", "expected an object"],
        [null, "expected an object"],
        [[], "expected an object"],
        [job({ kind: undefined }), "kind: expected a non-empty text"],
        [job({ kind: "" }), "kind: expected a non-empty text"],
        [job({ kind: 7 }), "kind: expected a non-empty text"],
        [job({ kind: null }), "kind: expected a non-empty text"],
        [job({ kind: "a\nb" }), "kind: no control characters"],
        [job({ kind: "x".repeat(256) }), "kind: at most 255 bytes"],
        [job({ queue: undefined }), "queue: expected a non-empty text"],
        [job({ queue: { name: "q" } }), "queue: expected a non-empty text"],
        [job({ queue: "Ω".repeat(128) }), "queue: at most 255 bytes"],
        [job({ queue: "\u007f" }), "queue: no control characters"],
        [job({ queue: "\u0001" }), "queue: no control characters"],
        [job({ args: undefined }), "args: expected a JSON value"],
        [job({ args: [long, long] }), "args: at most 1 MiB"],
        [job({ opts: [] }), "opts: expected an object"],
        [job({ opts: "x" }), "opts: expected an object"],
        [job({ option: {} }), "expected the keys kind, args, queue and opts only"],
        ...[0, 5, -1, 1.5, "high", true, {}].map(
          (priority) => [job({ opts: { priority } }), "priority: expected an integer from 1 to 4"] as const
        ),
        ...[0, -1, 32_768, 1e9, 2.5, "many"].map(
          (max_attempts) =>
            [job({ opts: { max_attempts } }), "max_attempts: expected an integer from 1 to 32767"] as const
        ),
        ...[-1, 0.5, 1e15, "soon"].map(
          (delay_ms) =>
            [job({ opts: { delay_ms } }), "delay_ms: expected a whole number of milliseconds, not negative"] as const
        ),
        [job({ opts: { delay_ms: 1, run_at: "2030-01-01T00:00:00Z" } }), "run_at: not together with delay_ms"],
        ...["tomorrow", "infinity", "2030-01-01", "2030-01-01T00:00:00", "2030-01-01 00:00:00Z", 5].map(
          (run_at) => [job({ opts: { run_at } }), "run_at: expected an ISO 8601 time with its zone"] as const
        ),
        ...[
          "2025-02-30T00:00:00Z",
          "2025-13-01T00:00:00Z",
          "2025-01-01T25:00:00Z",
          "999999-01-01T00:00:00Z",
          "2025-01-01T00:00:00+99:99"
        ].map((run_at) => [job({ opts: { run_at } }), "run_at: there is no such time"] as const),
        [job({ opts: { notify: "no" } }), "notify: expected a boolean"]
      ]
      for (const [wrong, rule] of cases) {
        const error = yield* fault(insertJobs(session, [job({}), job({ opts: { delay_ms: 5 } }), wrong]), "22023")
        expect([error.message, wrong]).toEqual([`job 2: ${rule}`, wrong])
      }
      for (const jobs of [{}, "x", null]) yield* fault(insertJobs(session, jobs), "22023")
      yield* fault(session.rows("select awa.insert_jobs(null)"), "22023")
      expect(yield* written(session)).toBe(0n)
    })
  )

  it.scopedLive("refuses an unknown option as WA005 and names it", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const error = yield* fault(insertJobs(session, [job({}), job({ opts: { "run at": 1 } })]), "WA005")
      expect(error.message).toBe("job 1: unknown option key 'run at'")
      yield* fault(insertJob(session, { "unique ": true }), "WA005")
      expect(yield* written(session)).toBe(0n)
    })
  )

  it.scopedLive("accepts the borders of its rules, and answers ids in order", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const jobs = [
        job({ kind: "x".repeat(255), queue: "Ω".repeat(127) }),
        job({ args: null }),
        job({ args: "x".repeat(1024 * 1024 - 2) }),
        job({ opts: null }),
        job({ opts: undefined }),
        job({ opts: { priority: 1, max_attempts: 1, delay_ms: 0 } }),
        job({ opts: { priority: 4, max_attempts: 32_767, delay_ms: 99_999_999_999_999 } }),
        job({ opts: { run_at: "2000-02-29T23:59:59.123456789+14:00" } }),
        job({ opts: { run_at: "10000-01-01T00:00:00Z" } }),
        job({ opts: { priority: null, max_attempts: null, delay_ms: null, run_at: null, notify: null } })
      ]
      const withoutOpts = jobs.map((one, i) => (i === 3 ? { kind: one.kind, queue: one.queue, args: one.args } : one))
      const ids = yield* insertJobs(session, withoutOpts)
      expect(ids).toEqual(jobs.map((_, i) => (ids[0] ?? 0n) + BigInt(i)))
      expect(column(yield* session.rows("select job_id from awa.deferred_jobs order by 1"), "job_id")).toEqual([
        ids[6],
        ids[8]
      ])
      expect(yield* insertJobs(session, [])).toEqual([])
      expect(yield* session.value("select run_at from awa.deferred_jobs where job_id = $1", [ids[8]])).toContain(
        "10000-01-01"
      )
      expect(
        yield* session.rows(
          "select priority, max_attempts, attempt, run_lease from awa.ready_entries where job_id = $1",
          [ids[1]]
        )
      ).toEqual([{ priority: 2, max_attempts: 25, attempt: 0, run_lease: 0n }])
    })
  )

  // F-29: one documented rule for names, the same in API and SQL
  it.scopedLive("takes names as they are", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const names = [
        "a/b",
        "Ω",
        "a b",
        "x".repeat(63),
        `"quoted"`,
        "it's",
        "a\\b",
        "%",
        "\u00e9",
        "e\u0301",
        "null",
        "😀"
      ]
      for (const name of names) {
        const id = yield* insertJob(session, {}, name, name)
        const attempt = only(yield* claim(session, { queue: name }))
        expect([attempt.job_id, attempt.kind]).toEqual([id, name])
      }
    })
  )

  // F-22
  it.scopedLive("notifies once per queue, at its commit, with the queue's name; not when told not to", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [writer, listener] = [yield* db.session, yield* db.session]
      const channel = String(
        yield* writer.value(
          "select substring(prosrc from 'awa_[0-9a-f]{16}') from pg_proc where proname = 'insert_jobs'"
        )
      )
      yield* listener.script(`listen ${channel}`)
      const heard = Effect.andThen(listener.value("select 1"), listener.notifications)
      yield* begin(writer)
      yield* enqueue(writer, 3, { queue: "one", args: "x".repeat(9000) })
      yield* enqueue(writer, 3, { queue: "one" })
      yield* enqueue(writer, 1, { queue: "two" })
      yield* enqueue(writer, 1, { queue: "silent", opts: { notify: false } })
      expect(yield* heard).toEqual([])
      yield* writer.script("commit")
      expect([...(yield* heard)].sort()).toEqual(["one", "two"])
      yield* insertJobs(
        writer,
        Array.from({ length: 2000 }, (_, i) => job({ queue: `queue ${i} ${"x".repeat(200)}` }))
      )
      expect(yield* heard).toHaveLength(2000)
    })
  )

  it.scopedLive("works in a savepoint: what is rolled back is gone", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* begin(session)
      const kept = yield* enqueue(session, 1)
      yield* session.script("savepoint a")
      yield* enqueue(session, 1)
      yield* enqueue(session, 1, { opts: { delay_ms: 1000 } })
      yield* session.script("rollback to a")
      const also = yield* enqueue(session, 1)
      yield* session.script("commit")
      expect(yield* claimIds(session)).toEqual([...kept, ...also])
      expect(yield* session.value("select count(*) from awa.deferred_jobs")).toBe(0n)
    })
  )

  it.scopedLive("does not wait for other producers", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [one, two] = [yield* db.session, yield* db.session]
      yield* begin(one)
      yield* enqueue(one, 1)
      yield* two.script("set lock_timeout = '1ms'")
      expect(yield* claimIds(two)).toEqual([])
      const ids = yield* enqueue(two, 1)
      expect(yield* claimIds(two)).toEqual(ids)
      yield* one.script("rollback")
    })
  )
})

const insertBatch = (session: Session, args: unknown, opts: unknown = {}, queue = "q", kind = "k") =>
  session
    .value("select awa.insert_batch($1, $2::text::jsonb, $3, $4::text::jsonb)::text", [
      kind,
      JSON.stringify(args),
      queue,
      JSON.stringify(opts)
    ])
    .pipe(Effect.map((ids) => (ids === "{}" ? [] : String(ids).slice(1, -1).split(",").map(BigInt))))

const stored = (session: Session, ids: ReadonlyArray<bigint>) =>
  session.rows(
    `select state, queue, kind, args, attempt, max_attempts, priority, run_at from awa.jobs where job_id = any ($1::bigint[]) order by job_id`,
    [`{${ids.join(",")}}`]
  )

describe("insert_batch", () => {
  it.scopedLive("stores what insert_jobs stores, and answers the ids in order", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const payloads = [{ n: 1 }, null, "x".repeat(1024 * 1024 - 2), [1, [2]], 7, false, {}]
      const options = [
        {},
        { priority: 4, max_attempts: 3, notify: false },
        { delay_ms: 0 },
        { run_at: "2000-02-29T23:59:59.123456789+14:00" },
        { run_at: "10000-01-01T00:00:00Z" },
        { priority: null, max_attempts: null, delay_ms: null, run_at: null, notify: null }
      ]
      for (const opts of options) {
        const batch = yield* insertBatch(session, payloads, opts)
        expect(batch).toEqual(payloads.map((_, i) => (batch[0] ?? 0n) + BigInt(i)))
        const jobs = yield* insertJobs(
          session,
          payloads.map((args) => job({ args, opts }))
        )
        expect(yield* stored(session, batch)).toEqual(yield* stored(session, jobs))
      }
      const [later] = yield* insertBatch(session, [1], { delay_ms: 3_600_000 })
      expect(
        yield* session.value(
          "select run_at - created_at from awa.deferred_jobs where job_id = $1 and state = 'scheduled'",
          [later]
        )
      ).toBe("01:00:00")
      expect(yield* insertBatch(session, [])).toEqual([])
    })
  )

  it.scopedLive("is claimed in the order of its payloads", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const ids = yield* insertBatch(
        session,
        Array.from({ length: 300 }, (_, n) => ({ n }))
      )
      const attempts = yield* claim(session, { limit: 300 })
      expect(attempts.map((a) => [a.job_id, a.args])).toEqual(ids.map((id, n) => [id, { n }]))
    })
  )

  it.scopedLive("raises what insert_jobs raises, names the payload that is too long, and writes nothing", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const long = "x".repeat(1024 * 1024)
      for (const args of [{}, "x", null]) yield* fault(insertBatch(session, args), "22023")
      yield* fault(session.rows("select awa.insert_batch('k', null)"), "22023")
      const error = yield* fault(insertBatch(session, [1, 2, [long, long]]), "22023")
      expect(error.message).toBe("job 2: args: at most 1 MiB")
      yield* fault(insertBatch(session, [1], { priority: 9 }), "22023")
      yield* fault(insertBatch(session, [1], []), "22023")
      yield* fault(insertBatch(session, [1], { run_at: "2025-02-30T00:00:00Z" }), "22023")
      yield* fault(insertBatch(session, [1], { prio: 1 }), "WA005")
      yield* fault(insertBatch(session, [1], {}, "q", "a\nb"), "22023")
      yield* fault(insertBatch(session, [1], {}, ""), "22023")
      yield* fault(session.rows("select awa.insert_batch(null, '[1]')"), "22023")
      yield* fault(session.rows("select awa.insert_batch('k', '[1]', null)"), "22023")
      expect(yield* written(session)).toBe(0n)
    })
  )

  it.scopedLive("looks at each payload where it is asked to: its twins, and its schema", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const [one, two] = yield* insertBatch(session, [1, 2], { unique: {} })
      const [again, three, first] = yield* insertBatch(session, [2, 3, 1], { unique: {} })
      expect([again, first]).toEqual([two, one])
      expect([one, two]).not.toContain(three)
      yield* fault(insertBatch(session, [1], { unique: { on_conflict: "error" } }), "23505")
      yield* session.rows("select * from awa.register_kinds($1::text::jsonb)", [
        JSON.stringify([{ kind: "k", schema: { type: "integer" } }])
      ])
      const error = yield* fault(insertBatch(session, [1, "x"], { validate: true }), "22023")
      expect(error.message).toContain("job 1")
    })
  )

  it.scopedLive("notifies once, at its commit; not when told not to", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [writer, listener] = [yield* db.session, yield* db.session]
      const channel = String(
        yield* writer.value(
          "select substring(prosrc from 'awa_[0-9a-f]{16}') from pg_proc where proname = 'insert_batch'"
        )
      )
      yield* listener.script(`listen ${channel}`)
      yield* begin(writer)
      yield* insertBatch(writer, [1, 2, 3], {}, "one")
      yield* insertBatch(writer, [1, 2, 3], { notify: false }, "silent")
      yield* writer.script("commit")
      expect(yield* Effect.andThen(listener.value("select 1"), listener.notifications)).toEqual(["one"])
    })
  )
})

describe("insert_job", () => {
  it.scopedLive("has defaults, and raises what insert_jobs raises", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const id = yield* session.value("select awa.insert_job('k', '[1]')")
      const named = yield* session.value(
        "select awa.insert_job(args => '2', kind => 'k', opts => null, queue => 'default')"
      )
      const attempts = yield* claim(session, { queue: "default" })
      expect(attempts.map((a) => [a.job_id, a.args])).toEqual([
        [id, [1]],
        [named, 2]
      ])
      yield* fault(session.value("select awa.insert_job(null, '{}')"), "22023")
      yield* fault(session.value("select awa.insert_job('k', '{}', null)"), "22023")
      yield* fault(insertJob(session, { priority: 9 }), "22023")
    })
  )
})
