import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { registerKinds } from "./contractSupport.js"
import type { Session } from "./database.js"
import { faults, nest, validated } from "./kindsSupport.js"
import { column, fault, fileDatabase, only } from "./support.js"

const database = fileDatabase()

const many = <A>(n: number, of: (i: number) => A): ReadonlyArray<A> => Array.from({ length: n }, (_, i) => of(i))

const named = <A>(n: number, of: (i: number) => A) => Object.fromEntries(many(n, (i) => [`n${String(i)}`, of(i)]))

const to = (i: number) => ({ $ref: `#/$defs/n${String(i)}` })

/** Definitions of which each leads on to the next, and the root to the first. */
const chain = (n: number, wrap = (inner: unknown): unknown => inner) => ({
  $defs: named(n, (i) => (i < n - 1 ? wrap(to(i + 1)) : {})),
  ...to(0)
})

const refusal = (session: Session, schema: unknown) =>
  Effect.map(fault(registerKinds(session, [{ kind: "order", schema }]), "22023"), ({ message }) => message)

const outOfSteps: unknown = expect.stringContaining("more than 100000 steps to check it")

describe("a check", () => {
  it.scopedLive("counts its steps by what is looked at, not by the values alone", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const text = (length: number) => "x".repeat(length)
      const cases: ReadonlyArray<readonly [unknown, unknown, number]> = [
        [{ enum: many(50, String) }, [1], 40],
        [{ required: many(320, String).map(() => "a") }, { a: 1 }, 15],
        [{ title: text(20_000) }, 1, 15],
        [{}, text(20_000), 30]
      ]
      for (const [schema, value, steps] of cases) {
        expect(yield* faults(session, schema, [value], steps)).toEqual([outOfSteps])
        expect(yield* faults(session, schema, [value], steps * 3)).not.toContainEqual(outOfSteps)
      }
      // a plain value is found in a large enum at the price of its size
      const large = { items: { enum: many(12_000, (i) => `value${String(i)}`) } }
      const items = (n: number) => many(n, () => "value11999")
      expect(yield* faults(session, large, [items(500), ["value12000"], items(5000)])).toEqual([
        null,
        expect.stringContaining("args[0]: expected one of"),
        outOfSteps
      ])
    })
  )

  it.scopedLive("finds a plain value, a list and an object in an enum by what they are", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const schema = { enum: [1, "1", null, true, [1, 2], { a: [1] }] }
      const fits = [1, 1.0, "1", null, true, [1, 2], { a: [1] }]
      const none = [2, "2", false, [1], [2, 1], [], {}, { a: 1 }, [[1, 2]]]
      expect((yield* faults(session, schema, fits)).filter((one) => one !== null)).toEqual([])
      expect((yield* faults(session, schema, none)).filter((one) => one === null)).toEqual([])
    })
  )

  it.scopedLive("says that references and alternatives go too deep, and does not use up the server's stack", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const wrap = (inner: unknown) => nest(30, inner, (one) => ({ anyOf: [one] }))
      yield* registerKinds(session, [{ kind: "order", schema: chain(60, wrap) }])
      const error = yield* fault(validated(session, 5), "22023")
      expect(error.message).toBe("job 0: args: more than 256 references and alternatives inside each other")
    })
  )

  it.scopedLive("does not take for additional what a pattern may name", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const closed = { properties: { a: { type: "string" } }, additionalProperties: false }
      const schema = { ...closed, patternProperties: { "^x-": {} } }
      const row = only(yield* registerKinds(session, [{ kind: "order", schema }]))
      expect(row["unchecked"]).toEqual([": additionalProperties", ": patternProperties"])
      yield* validated(session, { a: "a", "x-b": 5 })
      expect((yield* fault(validated(session, { a: 5, "x-b": 5 }), "22023")).message).toContain("args.a: expected type")
      expect(only(yield* registerKinds(session, [{ kind: "order", schema: closed }]))["unchecked"]).toEqual([])
      expect((yield* fault(validated(session, { "x-b": 5 }), "22023")).message).toContain("no such property")
    })
  )
})

describe("register_kinds", () => {
  it.scopedLive("refuses references that lead back or on for long, however their names are written", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const leads = "$ref: it leads back to itself, or on over more than 64 others"
      for (const [name, ref] of [
        ["~x", "~x"],
        ["~x", "~0x"],
        ["a/b", "a~1b"],
        ["a/b", "a/b"]
      ] as const) {
        const schema = { $defs: { [name]: { $ref: `#/$defs/${ref}` } } }
        expect(yield* refusal(session, schema)).toBe(`kind 0: schema: /$defs/${name}: ${leads}`)
      }
      expect(yield* refusal(session, chain(66))).toBe(`kind 0: schema: /$defs/n0: ${leads}`)
      yield* registerKinds(session, [{ kind: "order", schema: chain(65) }])
      yield* validated(session, 5)
      // a step into the value is no step on
      const list = { $defs: { list: { items: { $ref: "#/$defs/list" } } } }
      yield* registerKinds(session, [{ kind: "order", schema: list }])
    })
  )

  it.scopedLive("takes no more definitions, kinds, bytes and longer keys than it says", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      expect(yield* refusal(session, { $defs: named(1001, () => ({})) })).toBe("kind 0: schema: : $defs: at most 1000")
      yield* registerKinds(session, [{ kind: "order", schema: { $defs: named(1000, () => ({})) } }])

      const long = "é".repeat(128)
      for (const name of ["properties", "$defs"]) {
        const message = yield* refusal(session, { [name]: { [long]: {} } })
        expect(message).toBe(`kind 0: schema: : ${name}: keys of at most 255 bytes`)
      }
      expect(yield* refusal(session, { [long]: 1 })).toBe("kind 0: schema: : keys of at most 255 bytes")
      yield* registerKinds(session, [{ kind: "order", schema: { properties: { [long.slice(1)]: {} } } }])

      const kinds = (n: number, schema: unknown) => many(n, (i) => ({ kind: `k${String(i)}`, schema }))
      expect((yield* fault(registerKinds(session, kinds(1001, {})), "22023")).message).toBe(
        "kinds: at most 1000 in one call"
      )
      expect(yield* registerKinds(session, kinds(1000, {}))).toHaveLength(1000)
      const heavy = kinds(70, { title: "x".repeat(250_000) })
      expect((yield* fault(registerKinds(session, heavy), "22023")).message).toBe("kinds: at most 16 MiB in one call")
    })
  )

  it.scopedLive("cuts the path of a place that is far down", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const name = "n".repeat(250)
      const schema = nest(20, { format: "date" }, (inner) => ({ properties: { [name]: inner } }))
      const [place = ""] = column(yield* registerKinds(session, [{ kind: "order", schema }]), "unchecked").flat()
      expect(place).toBe(`/properties/${name}`.slice(0, 201) + ": format")
    })
  )

  it.scopedLive("looks at each schema once, and compiles nothing for it", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* session.script("begin; set local track_functions = 'all'")
      yield* registerKinds(session, [
        { kind: "a", schema: {} },
        { kind: "b", schema: { pattern: "^b" } }
      ])
      const calls = yield* session.value(
        "select pg_stat_get_xact_function_calls('awa.schema_look(jsonb)'::regprocedure)::int"
      )
      yield* session.script("rollback")
      expect(calls).toBe(2)
      // the plan is dear by its estimate, and compiling it took longer than all the rest
      expect(
        yield* session.value("select proconfig @> '{jit=off}' from pg_proc where proname = 'register_kinds'")
      ).toBe(true)
    })
  )

  it.scopedLive("is noted among what operators asked for, with what became of each", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const kinds = (priority: number) => [
        { kind: "b", schema: {}, priority },
        { kind: "a", schema: {} }
      ]
      for (const priority of [1, 2]) yield* registerKinds(session, kinds(priority))
      yield* fault(registerKinds(session, [...kinds(3), 5]), "22023")
      const rows = yield* session.rows(
        `select session_role = session_user as own, detail from awa.audit where verb = 'register_kinds' order by audit_id desc limit 2`
      )
      expect(rows).toEqual([
        { own: true, detail: { kinds: { a: "unchanged", b: "changed" } } },
        { own: true, detail: { kinds: { a: "registered", b: "registered" } } }
      ])
    })
  )
})
