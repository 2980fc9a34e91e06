/** The cases every driver is put through, in any language: `cases.json`, read and checked. */
import { Schema } from "effect"
import { readFileSync } from "node:fs"

/** What a program does in one transaction, in its driver's idiom. */
export interface Step {
  readonly do: "write" | "expect" | "complete" | "enqueue" | "raise" | "nested" | "pause" | "immediate"
  /** The error of this step is caught outside it, and nothing else is done about it. */
  readonly swallow?: boolean
  readonly progress?: string
  readonly steps?: ReadonlyArray<Step>
}

const Step: Schema.Schema<Step> = Schema.Struct({
  do: Schema.Literal("write", "expect", "complete", "enqueue", "raise", "nested", "pause", "immediate"),
  swallow: Schema.optionalWith(Schema.Boolean, { exact: true }),
  progress: Schema.optionalWith(Schema.String, { exact: true }),
  steps: Schema.optionalWith(Schema.Array(Schema.suspend(() => Step)), { exact: true })
})

const fields = Schema.Literal("job_id", "run_lease", "claim_slot", "receipt_id", "batch_id", "batch_index")
export type Field = typeof fields.Type

const exact = { exact: true } as const

export const Case = Schema.Struct({
  name: Schema.String,
  contract: Schema.String,
  given: Schema.optionalWith(
    Schema.Literal(
      "running",
      "under lease",
      "rescued",
      "claimed again",
      "completed",
      "cancelled",
      "parked",
      "waiting",
      "disabled"
    ),
    { ...exact, default: () => "running" }
  ),
  token: Schema.optionalWith(
    Schema.partialWith(Schema.Record({ key: fields, value: Schema.NullOr(Schema.String) }), exact),
    {
      ...exact,
      default: () => ({})
    }
  ),
  /** The isolation level, or null for statements by themselves. */
  transaction: Schema.optionalWith(Schema.NullOr(Schema.Literal("read committed", "repeatable read", "serializable")), {
    ...exact,
    default: () => "read committed"
  }),
  fault: Schema.optionalWith(Schema.Literal("answer of COMMIT", "COMMIT"), exact),
  steps: Schema.Array(Step),
  ends: Schema.NonEmptyArray(Schema.String),
  rows: Schema.Literal(0, 1),
  state: Schema.String,
  progress: Schema.optionalWith(Schema.Unknown, exact),
  enqueued: Schema.optionalWith(Schema.Int, { ...exact, default: () => 0 }),
  /** Also through a pooler in transaction mode. */
  pooler: Schema.optionalWith(Schema.Boolean, { ...exact, default: () => false }),
  /** What the contract does not prevent where nothing was expected: rows without their completion. */
  hole: Schema.optionalWith(Schema.Boolean, { ...exact, default: () => false })
})
export type Case = typeof Case.Type

const file = new URL("cases.json", import.meta.url)

export const cases: ReadonlyArray<Case> = Schema.decodeUnknownSync(
  Schema.Struct({ about: Schema.Array(Schema.String), cases: Schema.Array(Case) }),
  { onExcessProperty: "error" }
)(JSON.parse(readFileSync(file, "utf8"))).cases
