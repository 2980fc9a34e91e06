/** The kinds of an application, for `awa kinds export`. */
import { Schema } from "effect"
import * as Job from "effect-awa/Job"

export const Book = Job.make("book", {
  payload: Schema.Struct({ account: Schema.Int, amount: Schema.Int.pipe(Schema.between(-1000, 1000)) }),
  queue: "billing",
  priority: 1,
  maxAttempts: 7
})

const Line = Schema.Struct({
  sku: Schema.String.pipe(Schema.minLength(2)),
  count: Schema.Int,
  note: Schema.optional(Schema.String)
}).annotations({ identifier: "Line" })

interface Tree {
  readonly name: string
  readonly class: ReadonlyArray<Tree>
}
const Tree: Schema.Schema<Tree> = Schema.Struct({
  name: Schema.String,
  class: Schema.Array(Schema.suspend(() => Tree).annotations({ identifier: "Tree" }))
})

/** All that a payload may be made of, and names that no language takes as they are. */
export const Order = Job.make("order/v2", {
  payload: Schema.Struct({
    at: Schema.DateTimeUtc,
    lines: Schema.Array(Line),
    first: Schema.NullOr(Line),
    prices: Schema.Record({ key: Schema.String, value: Schema.Number }),
    state: Schema.Literal("new", "paid"),
    "tax-free": Schema.Boolean,
    import: Schema.optional(Schema.NullOr(Schema.String)),
    tree: Tree,
    part: Schema.Union(Schema.String, Line),
    id: Schema.UUID
  })
})

export const Ping = Job.make("ping", { payload: Schema.Array(Line) })

export const notAJob = { kind: "book" }
