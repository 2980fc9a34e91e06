/** Unique jobs: storage.md "unique_claims", known faults F-46, F-47 and F-48. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, FastCheck, Fiber } from "effect"
import type { Session } from "./database.js"
import {
  begin,
  blocked,
  claim,
  claimIds,
  close,
  column,
  drain,
  enqueue,
  explainBuffers,
  fault,
  fileDatabase,
  only,
  rotate
} from "./support.js"

const database = fileDatabase()

interface Job {
  readonly kind?: string
  readonly queue?: string
  readonly args?: unknown
  readonly opts?: Readonly<Record<string, unknown>>
  readonly unique?: Readonly<Record<string, unknown>> | null
}

const entry = ({ args = {}, kind = "k", opts = {}, queue = "q", unique = {} }: Job) => ({
  kind,
  queue,
  args,
  opts: unique === null ? opts : { ...opts, unique }
})

/** One call: for each job its id and what became of it. */
const insert = (session: Session, ...jobs: ReadonlyArray<Job>) =>
  session
    .rows("select job_id, answer from awa.insert_jobs($1::text::jsonb)", [JSON.stringify(jobs.map(entry))])
    .pipe(Effect.map((rows) => rows.map((row) => [row["job_id"], row["answer"]] as const)))

const insertOne = (session: Session, job: Job = {}) => Effect.map(insert(session, job), only)

const idOf = (session: Session, job: Job = {}) =>
  Effect.map(insertOne(session, job), ([id, answer]) => {
    expect(answer).toBe("inserted")
    return id
  })

const answerOf = (session: Session, job: Job = {}) => Effect.map(insertOne(session, job), ([, answer]) => answer)

const keyOf = (session: Session, { args = {}, kind = "k", queue = "q", unique = {} }: Job) =>
  session.value("select encode(awa.unique_key($1, $2, $3::text::jsonb, $4::text::jsonb), 'hex')", [
    kind,
    queue,
    JSON.stringify(args),
    JSON.stringify(unique)
  ])

/** Every claimed or waiting job, by its id: its state and the key that its row carries. */
const stored = (session: Session) =>
  session.rows(
    `select job_id, 'ring' as place, encode(unique_key, 'hex') as key from awa.ready_entries
     union all select job_id, state, encode(unique_key, 'hex') from awa.deferred_jobs order by 1`
  )

const holders = (session: Session) =>
  Effect.map(session.rows("select job_id from awa.unique_claims order by 1"), (rows) => column(rows, "job_id"))

const deferred = (session: Session, id: unknown) =>
  Effect.map(session.rows("select * from awa.deferred_jobs where job_id = $1", [id]), only)

/** As if a claim's time, or a key's window, had passed. */
const expire = (session: Session) =>
  session.script(
    "update awa.unique_claims set expires_at = clock_timestamp() - interval '1 ms' where expires_at is not null"
  )

/** What a claim (1) and a completion (2) do with the keys of the jobs that they take and end. */
const release = (session: Session, ids: ReadonlyArray<unknown>, states: number) =>
  session.rows(
    `select awa.release_unique(array_agg(decode(lpad(states::text, 2, '0'), 'hex') || unique_key), array_agg(job_id), $2::smallint)
     from awa.unique_claims where job_id = any ($1::bigint[])`,
    [ids, states]
  )

const promote = (session: Session) => session.rows("select * from awa.promote_due(100)")

/** As if every claim had been made that much earlier. */
const age = (session: Session, by: string) =>
  session.script(
    Array.from(
      { length: 4 },
      (_, n) => `update awa.claim_batches_${n} set claimed_at = claimed_at - interval '${by}'`
    ).join(";")
  )

const waiting = (observer: Session, session: Session, job: Job) =>
  Effect.gen(function* () {
    const fiber = yield* Effect.fork(insertOne(session, job))
    yield* blocked(observer, session)
    return fiber
  })

describe("a unique key", () => {
  it.scopedLive("is what `by` and `key` say, and nothing else", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const base = { kind: "k", queue: "q", args: { a: 1 } }
      const others = [{ kind: "other" }, { queue: "other" }, { args: { a: 2 } }, { unique: { key: "other" } }]
      const cases: ReadonlyArray<readonly [Readonly<Record<string, unknown>>, ReadonlyArray<boolean>]> = [
        // the same key as `base` with another kind, queue, payload, key of its own
        [{}, [false, true, false, false]],
        [{ by: null, key: null, states: null, window_ms: null, on_conflict: null }, [false, true, false, false]],
        [{ by: ["kind", "args"] }, [false, true, false, false]],
        [{ by: ["args", "kind", "kind"] }, [false, true, false, false]],
        [{ by: ["kind"] }, [false, true, true, false]],
        [{ by: ["queue"] }, [true, false, true, false]],
        [{ by: ["args"] }, [true, true, false, false]],
        [{ by: ["kind", "queue", "args"] }, [false, false, false, false]],
        [{ key: "x" }, [false, true, true, false]],
        [{ by: [], key: "x" }, [true, true, true, false]],
        [{ by: ["queue", "args"], key: "x" }, [true, false, false, false]]
      ]
      for (const [unique, same] of cases) {
        const key = yield* keyOf(session, { ...base, unique })
        expect(key).toMatch(/^01[0-9a-f]{64}$/)
        const keys = yield* Effect.forEach(others, (other) =>
          keyOf(session, { ...base, ...other, unique: { ...unique, ...other.unique } })
        )
        expect([unique, keys.map((one) => one === key)]).toEqual([unique, same])
      }
      expect(yield* keyOf(session, { args: null })).not.toBe(yield* keyOf(session, { unique: { by: ["kind"] } }))
      const firstBytes = yield* Effect.forEach(["unclaimed", "incomplete", "successful", "all"], (states) =>
        Effect.map(keyOf(session, { unique: { states } }), (key) => String(key).slice(0, 2))
      )
      expect(firstBytes).toEqual(["00", "01", "02", "03"])
    })
  )

  it.scopedLive("is the same for equal JSON however it is spelt, and another one otherwise", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const spell = (value: unknown, seed: number): string => {
        if (typeof value === "number") {
          const text = JSON.stringify(value)
          if (/e/i.test(text)) return text
          return [text, text.includes(".") ? `${text}00` : `${text}.0`, `${text}e0`, `${text}E+00`][seed % 4] ?? text
        }
        if (Array.isArray(value)) return `[${value.map((item: unknown) => spell(item, seed + 1)).join(" , ")}]`
        if (typeof value === "object" && value !== null) {
          const members = Object.entries(value).map(
            ([key, member]) => `${JSON.stringify(key)}: ${spell(member, seed + 2)}`
          )
          return `{${(seed % 2 === 0 ? members : members.reverse()).join(",")}}`
        }
        return JSON.stringify(value)
      }
      const leaf = FastCheck.oneof(
        FastCheck.constantFrom(0, 1, -1, 10, 100, 0.1, 0.5, 1.5, 1.05, 1e21, "1", "1.0", "1.50", "", null, true, false),
        FastCheck.double({ noNaN: true, noDefaultInfinity: true }),
        FastCheck.string()
      )
      const { tree } = FastCheck.letrec((tie) => ({
        tree: FastCheck.oneof(
          { maxDepth: 3 },
          leaf,
          FastCheck.array(tie("tree"), { maxLength: 3 }),
          FastCheck.dictionary(FastCheck.constantFrom("a", "b", "aa", "Ω", "1", ""), tie("tree"), { maxKeys: 3 })
        )
      }))
      const seed = Date.now() % 1_000_000
      const values = FastCheck.sample(tree, { numRuns: 300, seed }).filter(
        (value) => !JSON.stringify(value).includes("\\u")
      )
      const texts = values.flatMap((value) => [0, 1, 2, 3].map((n) => spell(value, n)))
      const [sums] = yield* session.rows(
        `with v as materialized (select t::jsonb as v, awa.unique_key('k', 'q', t::jsonb, '{}') as key from unnest($1::text[]) as t)
         select count(*) filter (where (a.v = b.v) <> (a.key = b.key)) as wrong,
                count(*) filter (where a.v = b.v and a.v::text <> b.v::text) as spellings from v a cross join v b`,
        [texts]
      )
      expect([seed, sums?.["wrong"]]).toEqual([seed, 0n])
      expect(Number(sums?.["spellings"])).toBeGreaterThan(100)
    })
  )

  it.scopedLive("takes a key of any length, script and content up to its bound", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const keys = [
        "x".repeat(255),
        "x".repeat(256),
        "x".repeat(8192),
        "Ω".repeat(4096),
        "😀",
        "a\nb",
        "'\"\\$$",
        " ",
        "\u00e9",
        "e\u0301"
      ]
      const ids = yield* Effect.forEach(keys, (key) => idOf(session, { unique: { key } }))
      const again = yield* Effect.forEach(keys, (key) => insertOne(session, { unique: { key } }))
      expect(again).toEqual(ids.map((id) => [id, "existing"]))
      expect(column(yield* stored(session), "key").every((key) => String(key).length === 66)).toBe(true)
    })
  )

  it.scopedLive("names the job, the field and the rule that it breaks, and writes nothing", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const cases: ReadonlyArray<readonly [unknown, string]> = [
        ...[true, "kind", 1, []].map((unique) => [unique, "unique: expected an object"] as const),
        ...["kind", {}, 7, ["payload"], [["kind"]], [null], ["kind", 1]].map(
          (by) => [{ by }, "unique.by: expected a list of kind, queue and args"] as const
        ),
        [{ by: [] }, "unique.by: expected one of kind, queue and args, or a key"],
        ...["", 7, {}, true].map((key) => [{ key }, "unique.key: expected a non-empty text"] as const),
        [{ key: "x".repeat(8193) }, "unique.key: at most 8192 bytes"],
        [{ key: "Ω".repeat(4097) }, "unique.key: at most 8192 bytes"],
        ...["running", 1, "", ["all"]].map(
          (states) => [{ states }, "unique.states: expected unclaimed, incomplete, successful or all"] as const
        ),
        ...[0, -1, 1.5, 1e15, "soon", {}].map(
          (window_ms) =>
            [{ window_ms }, "unique.window_ms: expected a whole number of milliseconds, at least 1"] as const
        ),
        ...["successful", "all"].map(
          (states) => [{ states }, "unique.window_ms: required when states is successful or all"] as const
        ),
        ...["ignore", true, 1].map(
          (on_conflict) => [{ on_conflict }, "unique.on_conflict: expected skip, replace or error"] as const
        )
      ]
      const call = (unique: unknown) =>
        session.rows("select awa.insert_jobs($1::text::jsonb)", [
          JSON.stringify([entry({}), { kind: "k", queue: "q", args: {}, opts: { unique } }])
        ])
      for (const [unique, rule] of cases) {
        expect([unique, (yield* fault(call(unique), "22023")).message]).toEqual([unique, `job 1: ${rule}`])
      }
      const unknown = yield* fault(call({ by: ["kind"], "by states": 1 }), "WA005")
      expect(unknown.message).toBe("job 1: unknown option key 'unique.by states'")
      expect((yield* fault(insert(session, {}, { opts: { other: 1 } }), "WA005")).message).toContain("'other'")
      expect(yield* stored(session)).toEqual([])
      expect(yield* holders(session)).toEqual([])
    })
  )

  it.scopedLive("is stored with its job, in the ring and aside; a job without one has none", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const jobs: ReadonlyArray<Job> = [
        { args: 1 },
        { args: 2, unique: null },
        { args: 3, opts: { delay_ms: 60_000 }, unique: { states: "all", window_ms: 1000 } },
        { args: 4, opts: { unique: null }, unique: null }
      ]
      const answers = yield* insert(session, ...jobs)
      const ids = answers.map(([id]) => id)
      expect(ids).toEqual([1n, 2n, 3n, 4n])
      expect(answers.map(([, answer]) => answer)).toEqual(jobs.map(() => "inserted"))
      const key = (n: number) => Effect.suspend(() => keyOf(session, jobs[n] ?? {}))
      expect(yield* stored(session)).toEqual([
        { job_id: ids[0], place: "ring", key: yield* key(0) },
        { job_id: ids[1], place: "ring", key: null },
        { job_id: ids[2], place: "scheduled", key: yield* key(2) },
        { job_id: ids[3], place: "ring", key: null }
      ])
      expect(yield* holders(session)).toEqual([ids[0], ids[2]])
      yield* session.script("update awa.deferred_jobs set run_at = clock_timestamp()")
      yield* promote(session)
      expect((yield* stored(session))[2]).toEqual({ job_id: ids[2], place: "ring", key: yield* key(2) })
    })
  )
})

describe("a twin", () => {
  // F-47
  it.scopedLive(
    "waits for the other transaction's end: it finds what was committed, and is inserted after a rollback",
    () =>
      Effect.gen(function* () {
        const db = yield* database
        const [one, two, observer] = [yield* db.session, yield* db.session, yield* db.session]
        yield* begin(one)
        const id = yield* idOf(one)
        const first = yield* waiting(observer, two, {})
        yield* one.script("commit")
        expect(yield* Fiber.join(first)).toEqual([id, "existing"])

        yield* begin(one)
        yield* idOf(one, { args: 2 })
        const second = yield* waiting(observer, two, { args: 2 })
        // While it waits it holds no segment: maintenance would take it for a writer.
        expect(
          yield* observer.value("select count(*) from pg_locks where pid = $1 and locktype = 'advisory'", [two.pid])
        ).toBe(0n)
        yield* one.script("rollback")
        const [inserted, answer] = yield* Fiber.join(second)
        expect(answer).toBe("inserted")
        expect(yield* claimIds(two)).toEqual([id, inserted])
      })
  )

  // F-47
  it.scopedLive("is inserted when the other one was rolled back with a savepoint", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [one, two, observer] = [yield* db.session, yield* db.session, yield* db.session]
      yield* begin(one)
      yield* one.script("savepoint s")
      yield* idOf(one)
      const twin = yield* waiting(observer, two, {})
      yield* one.script("rollback to s")
      expect((yield* Fiber.join(twin))[1]).toBe("inserted")
      yield* one.script("commit")
    })
  )

  it.scopedLive("in REPEATABLE READ and SERIALIZABLE is 40001 when the snapshot hides the other one", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [one, two] = [yield* db.session, yield* db.session]
      for (const isolation of ["repeatable read", "serializable"]) {
        for (const unique of [{}, { on_conflict: "error" }, { on_conflict: "replace" }]) {
          const args = [isolation, unique]
          yield* begin(two, isolation)
          yield* two.rows("select 1 from awa.meta")
          const id = yield* idOf(one, { args, opts: { delay_ms: 60_000 } })
          yield* fault(insert(two, { args, unique }), "40001")
          yield* two.script("rollback")
          yield* begin(two, isolation)
          const wanted = { error: undefined, replace: "replaced" }[unique.on_conflict ?? ""] ?? "existing"
          if (unique.on_conflict === "error") yield* fault(insert(two, { args, unique }), "23505")
          else expect(yield* insertOne(two, { args, unique })).toEqual([id, wanted])
          yield* two.script("rollback")
        }
      }
    })
  )

  it.scopedLive("of the same call is the first one: ids and answers are as if they came one by one", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const held = yield* idOf(session, { args: "held" })
      const answers = yield* insert(
        session,
        { args: "a" },
        { args: "held" },
        { args: "b", unique: null },
        { args: "a" },
        { args: "c" },
        { args: "a", unique: { states: "unclaimed" } },
        { args: "held" },
        { args: "c" }
      )
      const [a, , b, , c] = answers.map(([id]) => id)
      expect(answers).toEqual([
        [a, "inserted"],
        [held, "existing"],
        [b, "inserted"],
        [a, "existing"],
        [c, "inserted"],
        [a, "existing"],
        [held, "existing"],
        [c, "existing"]
      ])
      expect(yield* claimIds(session)).toEqual([held, a, b, c])
      expect([a, b, c].map(Number)).toEqual([a, b, c].map(Number).sort((x, y) => x - y))
    })
  )

  it.scopedLive("of another queue or kind is found when the key does not say them", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const unique = { by: [], key: "only one" }
      const id = yield* idOf(session, { unique })
      expect(yield* insertOne(session, { kind: "other", queue: "other", args: 1, unique })).toEqual([id, "existing"])
      expect(
        yield* session.value("select awa.insert_job('k', '7', 'q', $1::text::jsonb)", [JSON.stringify({ unique })])
      ).toBe(id)
    })
  )

  it.scopedLive("with `error` is 23505 and names the job that holds the key; nothing of the call is written", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const id = yield* idOf(session, { args: 1 })
      const unique = { on_conflict: "error" }
      const held = yield* fault(insert(session, { args: 3 }, { args: 2, unique }, { args: 1, unique }), "23505")
      expect(held.message).toBe(`job 2: its unique key is held by job ${String(id)}`)
      expect(JSON.parse(held.detail ?? "")).toEqual({ index: 2, job_id: String(id), twin: null })
      const within = yield* fault(insert(session, { args: 2 }, { args: 4 }, { args: 4, unique }), "23505")
      expect(JSON.parse(within.detail ?? "")).toEqual({ index: 2, job_id: null, twin: 1 })
      expect(yield* claimIds(session)).toEqual([id])
      expect(yield* holders(session)).toEqual([id])
      expect(yield* answerOf(session, { args: 2, unique })).toBe("inserted")
    })
  )

  it.scopedLive("is silent: a queue is notified of what is new in it", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, listener] = [yield* db.session, yield* db.session]
      const channel = String(
        yield* session.value(
          "select substring(prosrc from 'awa_[0-9a-f]{16}') from pg_proc where proname = 'insert_jobs'"
        )
      )
      yield* listener.script(`listen ${channel}`)
      const heard = Effect.andThen(listener.value("select 1"), listener.notifications)
      yield* insert(session, { queue: "one" }, { queue: "two" }, { queue: "three", args: 1, opts: { notify: false } })
      expect(yield* heard).toEqual(["one"])
      yield* insert(session, { queue: "one" }, { queue: "two" })
      expect(yield* heard).toEqual([])
      yield* insert(session, { queue: "one" }, { queue: "two", args: 2 })
      expect(yield* heard).toEqual(["two"])
    })
  )

  it.scopedLive("of two calls in opposite order waits for the other call, and not each for the other", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [holder, one, two, observer] = [yield* db.session, yield* db.session, yield* db.session, yield* db.session]
      for (let round = 0; round < 3; round++) {
        const jobs = Array.from({ length: 3 }, (_, n): Job => ({ args: [round, n] }))
        const keyed = yield* Effect.forEach(jobs, (job) =>
          Effect.map(keyOf(observer, job), (key) => [String(key), job] as const)
        )
        const [low = {}, middle = {}, high = {}] = keyed.sort(([a], [b]) => (a < b ? -1 : 1)).map(([, job]) => job)
        // Both wait for the middle key. In any other order than that of the keys each would hold what the other needs next.
        yield* begin(holder)
        yield* idOf(holder, middle)
        const up = yield* Effect.fork(insert(one, low, middle, high))
        yield* blocked(observer, one)
        const down = yield* Effect.fork(insert(two, high, middle, low))
        yield* blocked(observer, two)
        yield* holder.script("rollback")
        const answers = [yield* Fiber.join(up), yield* Fiber.join(down)].map((all) => all.map(([, answer]) => answer))
        expect(answers).toEqual([
          ["inserted", "inserted", "inserted"],
          ["existing", "existing", "existing"]
        ])
      }
    })
  )

  it.scopedLive("of a job that ends in the middle of a call is that job, or a new one, and never nothing", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [holder, one, two, observer] = [yield* db.session, yield* db.session, yield* db.session, yield* db.session]
      const jobs = Array.from({ length: 3 }, (_, n): Job => ({ args: n }))
      const keyed = yield* Effect.forEach(jobs, (job) =>
        Effect.map(keyOf(observer, job), (key) => [String(key), job] as const)
      )
      const [low = {}, middle = {}, high = {}] = keyed.sort(([a], [b]) => (a < b ? -1 : 1)).map(([, job]) => job)
      const id = yield* idOf(one, low)
      yield* begin(holder)
      yield* idOf(holder, high)
      // It has passed the lowest key, holds the middle one and waits for the highest, when the job that has the lowest ends.
      // Another call takes that key, and waits for the middle one.
      const first = yield* Effect.fork(insert(one, low, middle, high))
      yield* blocked(observer, one)
      yield* release(observer, [id], 2)
      const second = yield* Effect.fork(insert(two, low, middle))
      yield* blocked(observer, two)
      yield* holder.script("rollback")
      const [firstLow, firstMiddle, firstHigh] = yield* Fiber.join(first)
      expect(firstLow).toEqual([id, "existing"])
      expect([firstMiddle?.[1], firstHigh?.[1]]).toEqual(["inserted", "inserted"])
      const [secondLow, secondMiddle] = yield* Fiber.join(second)
      expect(secondLow?.[1]).toBe("inserted")
      expect(secondMiddle).toEqual([firstMiddle?.[0], "existing"])
      // A single job has no greater key to hold, and takes what has become free.
      yield* release(observer, [secondLow?.[0]], 2)
      expect(yield* answerOf(one, low)).toBe("inserted")
    })
  )
})

describe("on_conflict replace", () => {
  const replace = { on_conflict: "replace" }
  const later = { delay_ms: 3_600_000 }

  it.scopedLive("gives a scheduled job what the new one says, and keeps what it does not say", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const unique = { by: ["kind"], ...replace }
      const id = yield* idOf(session, { args: 1, opts: { ...later, priority: 1, max_attempts: 3 }, unique })
      const before = yield* deferred(session, id)
      expect(yield* insertOne(session, { args: 2, queue: "other", unique })).toEqual([id, "replaced"])
      const after = yield* deferred(session, id)
      expect(after).toEqual({ ...before, args: 2, queue: "other", priority: 2, max_attempts: 25, xid: after["xid"] })
      expect(Number(after["xid"])).toBeGreaterThan(Number(before["xid"]))
      expect(
        yield* answerOf(session, { args: 3, opts: { delay_ms: 60_000, priority: 4, max_attempts: 7 }, unique })
      ).toBe("replaced")
      expect(
        yield* session.rows(
          "select args, priority, max_attempts, run_at < clock_timestamp() + '61 s' as soon from awa.deferred_jobs"
        )
      ).toEqual([{ args: 3, priority: 4, max_attempts: 7, soon: true }])
      const at = "2100-01-01T00:00:00Z"
      expect(yield* answerOf(session, { args: 4, opts: { run_at: at }, unique })).toBe("replaced")
      expect(yield* session.value("select run_at = $1::timestamptz from awa.deferred_jobs", [at])).toBe(true)
      expect(yield* holders(session)).toEqual([id])
    })
  )

  it.scopedLive("gives a retryable job new arguments and keeps its attempts, errors and progress", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const unique = { by: ["kind"], ...replace }
      const id = yield* idOf(session, { args: 1, unique })
      const detail = { error: { name: "E" }, progress: { at: 5 }, delay_ms: 3_600_000 }
      for (let n = 1; n <= 2; n++) {
        yield* session.script("update awa.deferred_jobs set run_at = clock_timestamp()")
        yield* promote(session)
        yield* close(session, yield* claim(session), { outcome: "retried", detail })
      }
      const before = yield* deferred(session, id)
      expect(before).toMatchObject({ state: "retryable", attempt: 2, run_lease: 2n, progress: { at: 5 } })
      expect(yield* insertOne(session, { args: 2, opts: { max_attempts: 1 }, unique })).toEqual([id, "replaced"])
      const after = yield* deferred(session, id)
      // one attempt more than it had: a third attempt of one would be none of the handler's business
      expect(after).toMatchObject({
        ...before,
        args: 2,
        max_attempts: 3,
        xid: after["xid"]
      })
      expect(yield* answerOf(session, { args: 3, opts: { delay_ms: 0 }, unique })).toBe("replaced")
      const attempt = only(yield* claim(session))
      expect(attempt).toMatchObject({ job_id: id, attempt: 3, run_lease: 3n, args: 3, progress: { at: 5 } })
    })
  )

  it.scopedLive("leaves alone what is not scheduled or retryable, and a job of another kind", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const again = (id: unknown, args: number) =>
        Effect.map(insertOne(session, { args: "new", unique: { key: String(args), ...replace } }), (answer) =>
          expect([args, ...answer]).toEqual([args, id, "existing"])
        )
      const available = yield* idOf(session, { unique: { key: "1" } })
      yield* again(available, 1)
      const attempts = yield* claim(session)
      yield* again(available, 1)
      yield* close(session, attempts, { outcome: "snoozed", detail: { delay_ms: 60_000 } })
      yield* again(available, 1)
      const failed = yield* idOf(session, { unique: { key: "2", states: "all", window_ms: 60_000 } })
      yield* close(session, yield* claim(session), { outcome: "failed" })
      yield* again(failed, 2)
      const unique = { by: [], key: "3", ...replace }
      const scheduled = yield* idOf(session, { opts: later, unique })
      expect(yield* insertOne(session, { kind: "other", args: "new", unique })).toEqual([scheduled, "existing"])
      expect(yield* session.value("select count(*) from awa.deferred_jobs where args = '\"new\"'")).toBe(0n)
      expect(yield* insertOne(session, { args: "new", unique })).toEqual([scheduled, "replaced"])
    })
  )

  it.scopedLive("that names a time which has come runs at once; told not to notify, at the next tick", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, listener] = [yield* db.session, yield* db.session]
      const channel = String(
        yield* session.value(
          "select substring(prosrc from 'awa_[0-9a-f]{16}') from pg_proc where proname = 'insert_jobs'"
        )
      )
      yield* listener.script(`listen ${channel}`)
      const heard = Effect.andThen(listener.value("select 1"), listener.notifications)
      const due = yield* idOf(session, { args: 1, opts: { ...later, notify: false } })
      const quiet = yield* idOf(session, { args: 2, opts: { ...later, notify: false } })
      expect(yield* heard).toEqual([])
      yield* insert(session, { args: 1, unique: replace }, { args: 2, unique: replace })
      yield* insert(session, { args: 1, opts: { delay_ms: 7_200_000 }, unique: replace })
      expect([yield* heard, yield* claimIds(session)]).toEqual([[], []])
      yield* insert(session, { args: 2, opts: { delay_ms: 0, notify: false }, unique: replace })
      expect([yield* heard, yield* claimIds(session)]).toEqual([[], []])
      yield* insert(session, { args: 1, opts: { delay_ms: 60_000 }, unique: replace }) // sooner, but not yet
      expect([yield* heard, yield* claimIds(session)]).toEqual([["q"], []])
      expect(yield* insertOne(session, { args: 1, opts: { run_at: "2000-01-01T00:00:00Z" }, unique: replace })).toEqual(
        [due, "replaced"]
      )
      expect([yield* heard, yield* claimIds(session)]).toEqual([["q"], [due]])
      expect(yield* insertOne(session, { args: 1, unique: replace })).toEqual([due, "existing"])
      yield* promote(session)
      expect(yield* claimIds(session)).toEqual([quiet])
    })
  )

  it.scopedLive("in the same call: the last one counts, and a job that is due is left as it is", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const unique = { by: ["kind"], ...replace }
      const answers = yield* insert(
        session,
        { args: 1, opts: later, unique },
        { args: 2, opts: { delay_ms: 60_000, priority: 1 }, unique },
        { args: 3, unique },
        { kind: "due", args: 1, unique },
        { kind: "due", args: 2, unique }
      )
      const [id, , , due] = answers.map(([id]) => id)
      expect(answers).toEqual([
        [id, "inserted"],
        [id, "replaced"],
        [id, "replaced"],
        [due, "inserted"],
        [due, "existing"]
      ])
      expect(
        yield* session.rows("select args, priority, run_at < clock_timestamp() + '61 s' as soon from awa.deferred_jobs")
      ).toEqual([{ args: 3, priority: 2, soon: true }])
      expect(only(yield* claim(session)).args).toBe(1)
    })
  )

  it.scopedLive("waits for a promotion that holds the row, and then finds the job in the ring", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [promoter, session, observer] = [yield* db.session, yield* db.session, yield* db.session]
      for (const end of ["commit", "rollback"]) {
        const args = end
        const id = yield* idOf(session, { args, opts: { delay_ms: 1 } })
        yield* Effect.sleep("5 millis")
        yield* begin(promoter)
        yield* promote(promoter)
        const twin = yield* waiting(observer, session, { args, opts: { priority: 1 }, unique: replace })
        yield* promoter.script(end)
        expect(yield* Fiber.join(twin)).toEqual([id, end === "commit" ? "existing" : "replaced"])
        yield* promote(session)
        expect(only(yield* claim(session))).toMatchObject({ job_id: id, priority: end === "commit" ? 2 : 1 })
      }
    })
  )

  it.scopedLive("holds the row until it commits: promotion leaves it, another replacement waits and comes last", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [one, two, observer] = [yield* db.session, yield* db.session, yield* db.session]
      const unique = { by: ["kind"], ...replace }
      const id = yield* idOf(one, { args: 1, opts: { delay_ms: 1 }, unique })
      yield* Effect.sleep("5 millis")
      yield* begin(one)
      expect(yield* insertOne(one, { args: 2, unique })).toEqual([id, "replaced"])
      yield* observer.script("set lock_timeout = '1ms'")
      yield* promote(observer)
      expect(yield* claimIds(observer)).toEqual([])
      const second = yield* waiting(observer, two, { args: 3, unique })
      yield* one.script("commit")
      expect(yield* Fiber.join(second)).toEqual([id, "replaced"])
      yield* promote(observer)
      expect(only(yield* claim(observer)).args).toBe(3)
    })
  )

  it.scopedLive("of two calls in opposite order waits for the other call", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [holder, one, two, observer] = [yield* db.session, yield* db.session, yield* db.session, yield* db.session]
      const jobs = [1, 2, 3].map((args): Job => ({ args, opts: later, unique: replace }))
      const ids = (yield* insert(one, ...jobs)).map(([id]) => id)
      yield* begin(holder)
      yield* holder.rows("select from awa.deferred_jobs where job_id = $1 for update", [ids[1]])
      const up = yield* Effect.fork(insert(one, ...jobs))
      yield* blocked(observer, one)
      const down = yield* Effect.fork(insert(two, ...[...jobs].reverse()))
      yield* blocked(observer, two)
      yield* holder.script("rollback")
      const answers = [...(yield* Fiber.join(up)), ...(yield* Fiber.join(down))].map(([, answer]) => answer)
      expect(answers).toEqual(answers.map(() => "replaced"))
    })
  )

  it.scopedLive("in REPEATABLE READ is 40001 when the job has moved since the snapshot", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [one, two] = [yield* db.session, yield* db.session]
      yield* idOf(one, { opts: { delay_ms: 1 } })
      yield* Effect.sleep("5 millis")
      yield* begin(two, "repeatable read")
      yield* two.rows("select from awa.meta")
      yield* promote(one)
      yield* fault(insert(two, { unique: replace }), "40001")
      yield* two.script("rollback")
    })
  )
})

describe("a window", () => {
  const unique = { states: "all", window_ms: 60_000 }

  it.scopedLive(
    "ends the hold: the next twin is inserted and holds the key, whatever its predecessor does afterwards",
    () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        for (const states of ["unclaimed", "incomplete", "successful", "all"]) {
          const job = { args: states, unique: { states, window_ms: 60_000 } }
          const first = yield* idOf(session, job)
          const [attempt] = yield* claim(session)
          expect(attempt?.job_id).toBe(first)
          expect(yield* answerOf(session, job)).toBe(states === "unclaimed" ? "inserted" : "existing")
          yield* expire(session)
          const second = yield* idOf(session, job)
          if (attempt !== undefined) yield* close(session, [attempt], { outcome: "failed" })
          expect(yield* insertOne(session, job)).toEqual([second, "existing"])
          yield* claimIds(session)
          yield* session.script("truncate awa.unique_claims")
        }
      })
  )

  it.scopedLive("counts from the enqueue, by the clock and not by the transaction", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* begin(session)
      yield* Effect.sleep("30 millis")
      yield* insert(session, { args: 1, unique }, { args: 2 })
      expect(
        yield* session.rows(
          `select expires_at > now() + interval '60.025 s' as late, expires_at <= clock_timestamp() + interval '60 s' as early
           from awa.unique_claims order by job_id`
        )
      ).toEqual([
        { late: true, early: true },
        { late: null, early: null }
      ])
      yield* session.script("rollback")
    })
  )

  it.scopedLive("of one millisecond over many jobs is not taken for somebody else's", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const jobs = Array.from({ length: 500 }, (_, args): Job => ({ args, unique: { ...unique, window_ms: 1 } }))
      const held = yield* idOf(session, { args: "held" })
      const [, another] = yield* insert(session, { args: "held" }, ...jobs)
      expect(another?.[1]).toBe("inserted")
      yield* Effect.sleep("3 millis")
      const [first, ...answers] = yield* insert(session, { args: "held" }, ...jobs)
      expect(first).toEqual([held, "existing"])
      expect(new Set(answers.map(([, answer]) => answer))).toEqual(new Set(["inserted"]))
      expect(yield* session.value("select count(*) from awa.unique_claims")).toBe(501n)
    })
  )

  it.scopedLive(
    "that is over goes to one of several: the others wait and find it, or take it when it was rolled back",
    () =>
      Effect.gen(function* () {
        const db = yield* database
        const [one, two, observer] = [yield* db.session, yield* db.session, yield* db.session]
        for (const end of ["commit", "rollback"]) {
          const job = { args: end, unique }
          yield* idOf(observer, job)
          yield* expire(observer)
          yield* begin(one)
          const id = yield* idOf(one, job)
          const twin = yield* waiting(observer, two, job)
          yield* one.script(end)
          const [found, answer] = yield* Fiber.join(twin)
          if (end === "commit") expect([found, answer]).toEqual([id, "existing"])
          else expect(answer).toBe("inserted")
          expect(yield* observer.value("select count(*) from awa.unique_claims where job_id = $1", [found])).toBe(1n)
        }
      })
  )
})

// F-48: no state in which a preset forgets its job, none in which it keeps what it should give back
describe("the presets", () => {
  const presets = ["unclaimed", "incomplete", "successful", "all"] as const
  const end = (outcome: string, opts: Readonly<Record<string, unknown>> = {}) => ({
    opts,
    run: (session: Session) => Effect.flatMap(claim(session), (attempts) => close(session, attempts, { outcome }))
  })
  const aside = { detail: { delay_ms: 60_000 } }
  const steps: Readonly<
    Record<
      string,
      {
        readonly opts?: Readonly<Record<string, unknown>>
        readonly run?: (session: Session) => Effect.Effect<unknown, unknown>
        /** The presets under which a twin is kept out. */
        readonly kept: ReadonlyArray<(typeof presets)[number]>
      }
    >
  > = {
    available: { kept: presets },
    scheduled: { opts: { delay_ms: 60_000 }, kept: presets },
    promoted: {
      opts: { delay_ms: 1 },
      run: (s) => Effect.andThen(Effect.sleep("5 millis"), promote(s)),
      kept: presets
    },
    running: { run: (s) => claim(s), kept: ["incomplete", "successful", "all"] },
    retryable: {
      run: (s) => Effect.flatMap(claim(s), (attempts) => close(s, attempts, { outcome: "retried", ...aside })),
      kept: ["incomplete", "successful", "all"]
    },
    snoozed: {
      run: (s) => Effect.flatMap(claim(s), (attempts) => close(s, attempts, { outcome: "snoozed", ...aside })),
      kept: ["incomplete", "successful", "all"]
    },
    "given back": { ...end("released"), kept: ["incomplete", "successful", "all"] },
    "rescued and to run again": {
      run: (s) =>
        Effect.andThen(claim(s), Effect.andThen(age(s, "2 min"), s.value("select awa.rescue_stale('1 min', 100)"))),
      kept: ["incomplete", "successful", "all"]
    },
    completed: { ...end("completed"), kept: ["successful", "all"] },
    failed: { ...end("failed"), kept: ["all"] },
    cancelled: { ...end("cancelled"), kept: ["all"] },
    discarded: { ...end("discarded"), kept: ["all"] },
    "dead-lettered": { ...end("dead_lettered"), kept: ["all"] },
    exhausted: { ...end("retried", { max_attempts: 1 }), kept: ["all"] },
    "rescued for the last time": {
      opts: { max_attempts: 1 },
      run: (s) =>
        Effect.andThen(claim(s), Effect.andThen(age(s, "2 min"), s.value("select awa.rescue_stale('1 min', 100)"))),
      kept: ["all"]
    }
  }
  for (const [state, { kept, opts = {}, run }] of Object.entries(steps)) {
    it.scopedLive(`keep a twin out of a job that is ${state}, or not, as they say`, () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const jobs = presets.map((states): Job => ({
          args: states,
          opts,
          unique: { states, ...(states === "successful" || states === "all" ? { window_ms: 60_000 } : {}) }
        }))
        const ids = (yield* insert(session, ...jobs)).map(([id]) => id)
        if (run !== undefined) yield* run(session)
        const found = yield* insert(session, ...jobs)
        expect(found.map(([id, answer], n) => [presets[n], answer, id === ids[n]])).toEqual(
          presets.map((preset) => [preset, kept.includes(preset) ? "existing" : "inserted", kept.includes(preset)])
        )
      })
    )
  }
})

// F-46
describe("a crash of a job whose twin is there", () => {
  it.scopedLive("moves it and every other job", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const crashing: ReadonlyArray<Job> = [
        { args: 1, unique: { states: "unclaimed" } },
        { args: 2, unique: { window_ms: 60_000 } },
        { args: 3, opts: { max_attempts: 1 }, unique: { states: "unclaimed" } }
      ]
      const ids = (yield* insert(session, ...crashing)).map(([id]) => id)
      const others = yield* enqueue(session, 100)
      expect(yield* claim(session, { limit: 200 })).toHaveLength(103)
      yield* expire(session)
      const twins = yield* insert(session, ...crashing)
      expect(twins.map(([, answer]) => answer)).toEqual(["inserted", "inserted", "inserted"])
      yield* age(session, "2 min")
      expect(yield* session.value("select awa.rescue_stale('1 min', 1000)")).toBe(103)
      expect(yield* session.value("select count(*) from awa.quarantined_jobs")).toBe(0n)
      const again = yield* claimIds(session, { limit: 200 })
      expect(new Set(again)).toEqual(new Set([ids[0], ids[1], ...others, ...twins.map(([id]) => id)]))
      expect(column(yield* session.rows("select job_id from awa.terminal_jobs"), "job_id")).toEqual([ids[2]])
      // and the twins hold the keys as if nothing had happened
      expect(yield* holders(session)).toEqual(expect.arrayContaining([twins[1]?.[0]]))
      expect(yield* insertOne(session, crashing[1])).toEqual([twins[1]?.[0], "existing"])
    })
  )
})

describe("the cost", () => {
  it.scopedLive("of a twin does not grow with the keys that are held, nor with the jobs that are deferred", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [owner, session] = [yield* db.session, yield* db.session]
      const twin = (args: number) =>
        `select * from awa.insert_jobs('${JSON.stringify([
          entry({ args, opts: { delay_ms: 60_000 }, unique: { on_conflict: "replace", window_ms: 60_000 } }),
          entry({ args: args + 1, opts: { delay_ms: 60_000 } })
        ])}')`
      // a plan that believed the statistics would read the tables as a whole; an autovacuum between two looks would have it made anew
      yield* owner.script(
        "alter table awa.unique_claims set (autovacuum_enabled = off); alter table awa.deferred_jobs set (autovacuum_enabled = off)"
      )
      yield* owner.rows(twin(-10))
      yield* owner.script("analyze awa.unique_claims; analyze awa.deferred_jobs")
      yield* session.rows(twin(-10))
      yield* expire(session)
      yield* session.rows(twin(-10))
      yield* session.script(
        `insert into awa.unique_claims select sha256(n::text::bytea), n, 1 from generate_series(1000, 61000) n;
         insert into awa.deferred_jobs (job_id, queue, priority, state, run_at, run_lease, attempt, max_attempts, kind, args, created_at, xid)
         select n, 'q', 2, 'scheduled', now() + interval '1 day', 0, 0, 25, 'k', '{}', now(), '1' from generate_series(100000, 140000) n`
      )
      yield* session.rows(twin(-10))
      expect(yield* explainBuffers(session, twin(-10))).toBeLessThan(300)
      expect(yield* explainBuffers(session, twin(-20))).toBeLessThan(300)
      yield* expire(session)
      expect(yield* explainBuffers(session, twin(-10))).toBeLessThan(300)
    })
  )

  it.scopedLive("of waiting is not maintenance's: a segment is drained while an enqueue waits for a twin", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [one, two, observer] = [yield* db.session, yield* db.session, yield* db.session]
      // a key without a segment, as an enqueue holds it while it waits for another one
      yield* one.script("begin")
      yield* one.rows("insert into awa.unique_claims select substr(awa.unique_key('k', 'q', '{}', '{}'), 2), 1000, 1")
      const twin = yield* waiting(observer, two, {})
      yield* rotate(observer)
      expect(yield* drain(observer)).toBe(1)
      yield* one.script("rollback")
      const [id] = yield* Fiber.join(twin)
      expect(yield* claimIds(observer)).toEqual([id])
    })
  )
})
