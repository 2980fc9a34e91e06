import { describe, expect, it } from "@effect/vitest"
import { Arbitrary, Effect, FastCheck, JSONSchema, Schema } from "effect"
import { insertMany, insertOne, registerKinds } from "./contractSupport.js"
import type { Session } from "./database.js"
import { faults, nest, validated } from "./kindsSupport.js"
import { column, fault, fileDatabase } from "./support.js"

const database = fileDatabase()

const Item = Schema.Struct({
  sku: Schema.String.pipe(Schema.minLength(2), Schema.maxLength(4)),
  count: Schema.Int.pipe(Schema.between(1, 9)),
  note: Schema.optional(Schema.NullOr(Schema.String))
}).annotations({ identifier: "Item" })

interface Tree {
  readonly leaf: boolean
  readonly kids: ReadonlyArray<Tree>
}
const Tree: Schema.Schema<Tree> = Schema.Struct({
  leaf: Schema.Boolean,
  kids: Schema.Array(Schema.suspend(() => Tree).annotations({ identifier: "Tree" }))
})

const Order = Schema.Struct({
  id: Schema.String,
  items: Schema.NonEmptyArray(Item),
  state: Schema.Literal("new", "paid", 3, null),
  prices: Schema.Record({ key: Schema.String, value: Schema.Number.pipe(Schema.positive()) }),
  part: Schema.Union(Schema.TaggedStruct("A", { a: Schema.Int }), Schema.TaggedStruct("B", { b: Schema.String })),
  tree: Tree
})

const order = {
  id: "o",
  items: [{ sku: "ab", count: 1 }],
  state: "new",
  prices: { "a b": 1.5 },
  part: { _tag: "B", b: "" },
  tree: { leaf: false, kids: [{ leaf: true, kids: [] }] }
}

const schemaOf = (schema: unknown, kind = "order") => [{ kind, schema }]

const stored = (session: Session) => session.value("select count(*) from awa.ready_entries")

describe("validate", () => {
  it.scopedLive("lets in what fits the registered schema, and names the path and the rule of what does not", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* registerKinds(session, schemaOf(JSONSchema.make(Schema.encodedBoundSchema(Order))))
      const cases: ReadonlyArray<readonly [unknown, string]> = [
        [5, "args: expected type object"],
        [{ ...order, id: undefined }, "args.id: required"],
        [{ ...order, id: 5 }, "args.id: expected type string"],
        [{ ...order, ids: 5 }, "args.ids: no such property"],
        [{ ...order, "i d": 5 }, `args["i d"]: no such property`],
        [{ ...order, items: [] }, "args.items: minItems 1"],
        [{ ...order, items: [{ sku: "a", count: 1 }] }, "args.items[0].sku: minLength 2"],
        [{ ...order, items: [...order.items, { sku: "abcde", count: 1 }] }, "args.items[1].sku: maxLength 4"],
        [{ ...order, items: [{ sku: "ab", count: 0 }] }, "args.items[0].count: minimum 1"],
        [{ ...order, items: [{ sku: "ab", count: 10 }] }, "args.items[0].count: maximum 9"],
        [{ ...order, items: [{ sku: "ab", count: 1.5 }] }, "args.items[0].count: expected type integer"],
        [
          { ...order, items: [{ sku: "ab", count: 1, note: 5 }] },
          "args.items[0].note: anyOf: none of 2 fits (the first: args.items[0].note: expected type string)"
        ],
        [{ ...order, prices: { "a b": 0 } }, `args.prices["a b"]: exclusiveMinimum 0`],
        [{ ...order, part: { _tag: "C" } }, "args.part: anyOf: none of 2 fits (the first: args.part.a: required)"],
        [
          { ...order, tree: { leaf: true, kids: [{ leaf: 1, kids: [] }] } },
          "args.tree.kids[0].leaf: expected type boolean"
        ]
      ]
      for (const [args, rule] of cases) {
        const error = yield* fault(
          insertMany(session, [
            { kind: "order", queue: "q", args },
            { kind: "order", queue: "q", args, opts: { validate: true } }
          ]),
          "22023"
        )
        expect(error.message).toBe(`job 1: ${rule}`)
      }
      expect(yield* stored(session)).toBe(0n)
      for (const state of ["new", "paid", 3, null]) yield* validated(session, { ...order, state })
      expect(yield* stored(session)).toBe(4n)
    })
  )

  it.scopedLive("looks at nothing of a job that does not ask, and beside unique only at those that do", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* registerKinds(session, schemaOf({ type: "string" }, "k"))
      for (const opts of [{}, { validate: false }, { validate: null }]) yield* insertOne(session, opts, 5)
      const two = (first: unknown, second: unknown) =>
        insertMany(session, [
          { kind: "k", queue: "q", args: 5, opts: first },
          { kind: "k", queue: "q", args: 5, opts: second }
        ])
      yield* fault(two({ unique: { key: "a" } }, { validate: true }), "22023")
      yield* fault(two({ validate: false }, { unique: { by: "no" } }), "22023")
      yield* fault(two({ validate: true, prio: 1 }, {}), "WA005")
      expect(column(yield* two({ unique: { key: "a" } }, { unique: { key: "a" }, validate: false }), "answer")).toEqual(
        ["inserted", "existing"]
      )
      for (const validate of ["true", 1, {}]) {
        expect((yield* fault(insertOne(session, { validate }, "x"), "22023")).message).toBe(
          "job 0: validate: expected a boolean"
        )
      }
      expect((yield* fault(validated(session, "x", "other"), "22023")).message).toBe(
        "job 0: validate: no kind 'other' is registered"
      )
    })
  )

  // an oracle of another make: what the schema itself accepts
  it.scopedLive(
    "agrees with the schema that the payload was exported from, on values that fit and on values that do not",
    () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const encoded = Schema.encodedBoundSchema(Order)
        const isOrder = Schema.is(encoded, { onExcessProperty: "error" })
        const good = FastCheck.sample(Arbitrary.make(encoded), { numRuns: 150, seed: 7 })
        const spoilt = FastCheck.sample(
          FastCheck.tuple(
            FastCheck.constantFrom(...good),
            FastCheck.constantFrom(...Object.keys(order), "more"),
            FastCheck.json()
          ),
          { numRuns: 300, seed: 8 }
        ).map(([value, key, other]) => {
          const parsed: unknown = JSON.parse(other)
          return { ...value, [key]: parsed }
        })
        // through JSON, which has no undefined and no negative zero; and without what PostgreSQL cannot store
        const values = [...good, ...spoilt]
          .map((value) => JSON.stringify(value))
          .filter((text) => !/\\u(0000|d[89a-f])/.test(text))
          .map((text): unknown => JSON.parse(text))
        const found = yield* faults(session, JSONSchema.make(encoded), values)
        const disagree = values.filter((value, i) => isOrder(value) !== (found[i] === null))
        expect(disagree).toEqual([])
        expect(found.filter((one) => one === null).length).toBeGreaterThan(100)
        expect(found.filter((one) => one !== null).length).toBeGreaterThan(100)
      })
  )

  it.scopedLive("has an end, however deep a value is and however a schema branches", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const any = { $ref: "#/$defs/any" }
      const list = { $defs: { any: { anyOf: [{ type: "null" }, { type: "array", items: any }] } }, ...any }
      const wrap = (inner: unknown) => [inner]
      expect(yield* faults(session, list, [nest(15, null, wrap), nest(15, 5, wrap)])).toMatchObject([
        null,
        expect.stringContaining("none of 2 fits")
      ])
      expect(yield* faults(session, list, [nest(200, null, wrap)])).toEqual([
        expect.stringContaining("nested deeper than 32")
      ])
      expect(yield* faults(session, list, [nest(32, null, wrap), nest(33, null, wrap)])).toEqual([
        null,
        expect.stringContaining("nested deeper than 32")
      ])
      const branching = {
        $defs: {
          any: {
            anyOf: [1, 2, 3, 4].map((tag) => ({
              type: "object",
              properties: { a: any, b: any, z: { const: tag } },
              required: ["a"]
            }))
          }
        },
        ...any
      }
      const started = performance.now()
      const hostile = nest(12, 5, (inner) => ({ a: inner, b: inner }))
      expect(yield* faults(session, branching, [nest(10, hostile, (a) => ({ a }))])).toEqual([
        expect.stringContaining("more than 100000 steps to check it")
      ])
      expect(performance.now() - started).toBeLessThan(20_000)
    })
  )
})

describe("register_kinds", () => {
  it.scopedLive("says of each what is new, what has changed, and what of its schema is not checked", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const kinds = [
        { kind: "a", schema: { type: "string", pattern: "^a", title: "t" }, queue: "q", priority: 1, max_attempts: 3 },
        { kind: "b", schema: { properties: { "x/y": { format: "date" } }, items: [{}], anyOf: [{ not: {} }] } }
      ]
      const unchecked = [["/: pattern".slice(1)], ["/anyOf/0: not", "/properties/x~1y: format", ": items"].sort()]
      const answers = (yield* registerKinds(session, kinds)).map((row) => [
        row["kind"],
        row["answer"],
        row["unchecked"]
      ])
      expect(answers.map(([kind, answer]) => [kind, answer])).toEqual([
        ["a", "registered"],
        ["b", "registered"]
      ])
      expect(answers.map(([, , list]) => [...(Array.isArray(list) ? list.map(String) : [])].sort())).toEqual(unchecked)
      const again = [{ ...kinds[0], max_attempts: 4 }, kinds[1]]
      expect(column(yield* registerKinds(session, again), "answer")).toEqual(["changed", "unchanged"])
      expect(yield* session.rows("select kind, queue, priority, max_attempts from awa.job_kinds order by 1")).toEqual([
        { kind: "a", queue: "q", priority: 1, max_attempts: 4 },
        { kind: "b", queue: null, priority: null, max_attempts: null }
      ])
    })
  )

  it.scopedLive("refuses a schema that cannot be one, by its path, and registers none of the call", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const cases: ReadonlyArray<readonly [unknown, string]> = [
        [undefined, "schema: expected an object"],
        [[], "schema: expected an object"],
        [{ type: "text" }, ": type: expected the name of a type"],
        [{ properties: { a: { type: ["string", 5] } } }, "/properties/a: type: expected the name of a type"],
        [{ properties: { a: 5 } }, "/properties/a: expected an object"],
        [{ properties: [] }, ": properties: expected an object"],
        [{ required: "a" }, ": required: expected a list of texts"],
        [{ required: ["a", 5] }, ": required: expected a list of texts"],
        [{ enum: [] }, ": enum: expected a list that is not empty"],
        [{ anyOf: [{ anyOf: {} }] }, "/anyOf/0: anyOf: expected a list that is not empty"],
        [{ additionalProperties: "no" }, ": additionalProperties: expected a boolean or an object"],
        [{ items: true }, ": items: expected an object"],
        [{ items: { minLength: -1 } }, "/items: minLength: expected a whole number, not negative"],
        [{ maxItems: "3" }, ": maxItems: expected a whole number, not negative"],
        [{ minimum: "3" }, ": minimum: expected a number"],
        [{ $ref: "#/properties/a" }, ": $ref: expected #/$defs/ and a name that is there"],
        [{ $defs: { a: {} }, $ref: "#/$defs/b" }, ": $ref: expected #/$defs/ and a name that is there"],
        [
          { $defs: { a: { anyOf: [{}, { $ref: "#/$defs/b" }] }, b: { $ref: "#/$defs/a" } } },
          "/$defs/a: $ref: it leads back"
        ],
        [nest(70, {}, (items) => ({ items })), "nested deeper than 64"],
        [{ title: Array.from({ length: 60_000 }, (_, i) => i).join(" ") }, "schema: at most 256 KiB"]
      ]
      for (const [schema, rule] of cases) {
        const error = yield* fault(
          registerKinds(session, [
            { kind: "ok", schema: {} },
            { kind: "k", schema }
          ]),
          "22023"
        )
        expect(error.message).toContain("kind 1: ")
        expect(error.message).toContain(rule)
      }
      expect(yield* session.value("select count(*) from awa.job_kinds")).toBe(0n)
    })
  )

  it.scopedLive("names the kind, the field and the rule that it breaks", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const good = { kind: "k", schema: {} }
      const cases: ReadonlyArray<readonly [unknown, string]> = [
        [5, "expected an object"],
        [null, "expected an object"],
        ...[undefined, null, 5, ""].map((kind) => [{ ...good, kind }, "kind: expected a non-empty text"] as const),
        [{ ...good, kind: "a\nb" }, "kind: no control characters"],
        [{ ...good, queue: "" }, "queue: expected a non-empty text"],
        [{ ...good, queue: "x".repeat(256) }, "queue: at most 255 bytes"],
        ...[["a"], {}, 5, true].map((queue) => [{ ...good, queue }, "queue: expected a non-empty text"] as const),
        ...[0, 5, "high", "2", [2], true].map(
          (priority) => [{ ...good, priority }, "priority: expected an integer from 1 to 4"] as const
        ),
        ...[0, 32_768, 1.5, "5", [5]].map(
          (max_attempts) => [{ ...good, max_attempts }, "max_attempts: expected an integer from 1 to 32767"] as const
        )
      ]
      for (const [kind, rule] of cases) {
        expect((yield* fault(registerKinds(session, [{ ...good, kind: "ok" }, kind]), "22023")).message).toBe(
          `kind 1: ${rule}`
        )
      }
      const twins = [good, { ...good, kind: "other" }, { ...good, priority: 1 }]
      expect((yield* fault(registerKinds(session, twins), "22023")).message).toBe("kind 2: kind: the same as of kind 0")
      for (const kinds of [{}, "x", null]) {
        expect((yield* fault(registerKinds(session, kinds), "22023")).message).toBe("kinds: expected a JSON array")
      }
      expect((yield* fault(registerKinds(session, [good, { ...good, retry: 1 }]), "WA005")).message).toBe(
        "kind 1: unknown option key 'retry'"
      )
      expect(yield* session.value("select count(*) from awa.job_kinds")).toBe(0n)
    })
  )
})
