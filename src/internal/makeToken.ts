import * as JobId from "../JobId.js"
import * as RunLease from "../RunLease.js"

/** @internal */
export const TokenTypeId: unique symbol = Symbol.for("effect-awa/FinalizationToken")

/** @internal */
export interface Token {
  readonly [TokenTypeId]: typeof TokenTypeId
  readonly jobId: JobId.JobId
  readonly runLease: RunLease.RunLease
}

/** @internal */
export interface TokenFields {
  readonly job_id: bigint
  readonly run_lease: bigint
  readonly claim_slot: number
  readonly receipt_id: bigint
  readonly batch_id: bigint
  readonly batch_index: number
}

// The registry is the proof: a value that is not in it was not made here, whatever it looks like.
const made = new WeakMap<object, TokenFields>()

/** @internal Only `Claim` makes tokens. */
export const makeToken = (fields: TokenFields): Token => {
  const token: Token = {
    [TokenTypeId]: TokenTypeId,
    jobId: JobId.make(fields.job_id),
    runLease: RunLease.make(fields.run_lease)
  }
  made.set(Object.freeze(token), Object.freeze({ ...fields }))
  return token
}

/** @internal */
export const isToken = (value: unknown): value is Token =>
  typeof value === "object" && value !== null && made.has(value)

/** @internal The fields behind a token; undefined for a forged one. */
export const tokenFields = (token: Token): TokenFields | undefined => made.get(token)

/** @internal What a driver needs to know of a running attempt, besides its token. */
export interface Running {
  readonly schema: string
  /** What the handler last said of its progress, as JSON text. */
  readonly progress: () => string | undefined
}

const running = new WeakMap<object, Running>()

/** @internal The attempt of this token is running here, for as long as anybody has the token. */
export const bindToken = (token: Token, attempt: Running): void => void running.set(token, attempt)

/** @internal Its handler has ended. Whoever keeps the token must not keep the attempt with its payload. */
export const unbindToken = (token: Token): void => void running.delete(token)

/** @internal */
export const runningOf = (token: Token): Running | undefined => running.get(token)
