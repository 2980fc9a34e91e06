/**
 * How the harness talks with a program that puts one driver through the cases: a request on a line of its standard input, its
 * answer on a line of its standard output, and `{"paused":true}` between them where a step says `pause`, answered by an empty line.
 * README.md says it for whoever writes one.
 */
import { Schema } from "effect"
import type { Case, Field, Step } from "./cases.js"

export type TokenText = Readonly<Record<Field, string | null>>

export interface Attempt {
  readonly tag: string
  readonly token: TokenText
}

export interface Request {
  /** Where the database is; a program keeps its connections until another url is asked for. */
  readonly url: string
  /** null: every statement by itself. */
  readonly transaction: Case["transaction"]
  /** One transaction each, one after the other, on one connection. */
  readonly attempts: ReadonlyArray<Attempt>
  readonly steps: ReadonlyArray<Step>
}

export const Result = Schema.Struct({
  /** `committed`, `application`, `none` (an error without a SQLSTATE) or a SQLSTATE. */
  end: Schema.String,
  message: Schema.optional(Schema.String),
  /** The rows that complete_job gave: job and outcome as texts. */
  completions: Schema.Array(Schema.Struct({ job_id: Schema.String, outcome: Schema.String }))
})
export type Result = typeof Result.Type

export const Answer = Schema.Struct({
  results: Schema.Array(Result),
  /** What the transactions took, without connecting. */
  micros: Schema.Number
})
export type Answer = typeof Answer.Type

/** A driver that can be put through the cases. */
export interface Program {
  /** `onPause` is awaited where a step says `pause`. */
  readonly run: (request: Request, onPause: () => Promise<void>) => Promise<Answer>
}
