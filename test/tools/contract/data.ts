/** The public contract of the schema as data: what the documentation shows, and what the contract test demands. */
import { Schema } from "effect"
import * as Fs from "node:fs"

const Argument = Schema.Struct({ name: Schema.String, type: Schema.String, default: Schema.optional(Schema.String) })

/** `null` says when the column is null; it begins with `never` where that cannot be. */
const Column = Schema.Struct({ name: Schema.String, type: Schema.String, null: Schema.String })

const PublicFunction = Schema.Struct({
  name: Schema.String,
  class: Schema.String,
  say: Schema.String,
  arguments: Schema.Array(Argument),
  returns: Schema.Literal("nothing", "value", "row", "rows"),
  columns: Schema.Array(Column),
  isolation: Schema.Literal("any", "READ COMMITTED"),
  waits: Schema.String,
  states: Schema.Array(Schema.String)
})
export type PublicFunction = typeof PublicFunction.Type

const Key = Schema.Struct({ key: Schema.String, type: Schema.String, rule: Schema.String, default: Schema.String })

const List = Schema.Struct({
  name: Schema.String,
  title: Schema.String,
  /** The SQLSTATE of a key that is not listed. */
  unknownKey: Schema.Literal("WA005", "22023"),
  keys: Schema.Array(Key)
})

const Contract = Schema.Struct({
  contractVersion: Schema.Int,
  functions: Schema.Array(PublicFunction),
  lists: Schema.Array(List),
  outcomes: Schema.Array(Schema.Struct({ outcome: Schema.String, say: Schema.String })),
  states: Schema.Array(Schema.Struct({ state: Schema.String, say: Schema.String }))
})
export type Contract = typeof Contract.Type

export const contract = Schema.decodeUnknownSync(Schema.parseJson(Contract), { onExcessProperty: "error" })(
  Fs.readFileSync(new URL("../../../schema/contract.json", import.meta.url), "utf8")
)

/** The keys of one of its lists. */
export const keysOf = (name: string): ReadonlyArray<string> => {
  const list = contract.lists.find((list) => list.name === name)
  if (list === undefined) throw new Error(`schema/contract.json has no list ${name}`)
  return list.keys.map(({ key }) => key)
}
