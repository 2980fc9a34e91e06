import * as Schema from "effect/Schema"
import { manifestText } from "./schemaText.generated.js"

/** @internal The classes that a role can be bound to: what it may do. */
export const Capability = Schema.Literal(
  "producer",
  "finalizer",
  "batch_finalizer",
  "expectation",
  "executor",
  "maintenance",
  "callback",
  "admin_reader",
  "admin_mutator"
)

/** @internal Those whose transactions hold attempts: their roles are given limits (C-40). */
export const finalizerCapabilities: ReadonlyArray<string> = ["finalizer", "batch_finalizer"]

const Class = Schema.Literal(...Capability.literals, "contract", "migrator", "internal")

const Privilege = Schema.Literal("select", "insert", "update", "delete", "truncate", "usage")

const Manifest = Schema.Struct({
  description: Schema.String,
  classes: Schema.Record({ key: Class, value: Schema.String }),
  relations: Schema.Array(
    Schema.Struct({
      name: Schema.String,
      kind: Schema.Literal("table", "view", "sequence", "type"),
      /** What the routines do with it. */
      owner: Schema.Array(Privilege),
      grants: Schema.partialWith(Schema.Record({ key: Capability, value: Schema.Array(Privilege) }), { exact: true })
    })
  ),
  routines: Schema.Array(
    Schema.Struct({
      name: Schema.String,
      arguments: Schema.String,
      class: Class,
      securityDefiner: Schema.Boolean,
      searchPath: Schema.NullOr(Schema.String),
      grants: Schema.Array(Schema.String)
    })
  )
})

/** @internal */
export type Manifest = typeof Manifest.Type

/** @internal `schema/manifest.json`, which is checked where it is written. */
export const manifest: Manifest = Schema.decodeUnknownSync(Schema.parseJson(Manifest), { onExcessProperty: "error" })(
  manifestText
)

/** @internal One entry for each segment of a ring. */
export const unfold = <A extends { readonly name: string }>(entry: A, ring: number): ReadonlyArray<A> =>
  entry.name.includes("{segment}")
    ? Array.from({ length: ring }, (_, segment) => ({
        ...entry,
        name: entry.name.replace("{segment}", String(segment))
      }))
    : [entry]

/** @internal */
export type Capability = typeof Capability.Type
