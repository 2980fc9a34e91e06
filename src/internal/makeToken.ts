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

/** @internal What a driver needs to know of a running attempt, besides its token. */
export interface Running {
  readonly schema: string
  /** What the handler last said of its progress, as JSON text. */
  readonly progress: () => string | undefined
  /** Notes that the attempt waits for a connection, or does so no more. */
  readonly waits: (waiting: boolean) => void
}

const trusted = { disableValidation: true }

/**
 * The private fields are the proof: an object that has none was not made here, whatever it looks like. (A registry of what was
 * made would be looked through by every garbage collection.)
 */
class AttemptToken implements Token {
  readonly [TokenTypeId]: typeof TokenTypeId = TokenTypeId
  readonly jobId: JobId.JobId
  readonly runLease: RunLease.RunLease
  readonly #fields: TokenFields
  #running: Running | undefined

  constructor(fields: TokenFields) {
    // not validated: they are the database's own
    this.jobId = JobId.JobId.make(fields.job_id, trusted)
    this.runLease = RunLease.RunLease.make(fields.run_lease, trusted)
    this.#fields = fields
    Object.freeze(this)
  }

  static fields(value: object): TokenFields | undefined {
    return #fields in value ? value.#fields : undefined
  }

  static running(value: object): Running | undefined {
    return #running in value ? value.#running : undefined
  }

  static run(value: object, attempt: Running | undefined): void {
    if (#running in value) value.#running = attempt
  }
}

/** @internal Only `Claim` makes tokens. */
export const makeToken = (fields: TokenFields): Token => new AttemptToken(fields)

/** @internal */
export const isToken = (value: unknown): value is Token =>
  typeof value === "object" && value !== null && AttemptToken.fields(value) !== undefined

/** @internal The fields behind a token; undefined for a forged one. */
export const tokenFields = (token: Token): TokenFields | undefined => AttemptToken.fields(token)

/** @internal The attempt of this token is running here, for as long as anybody has the token. */
export const bindToken = (token: Token, attempt: Running): void => AttemptToken.run(token, attempt)

/** @internal Its handler has ended. Whoever keeps the token must not keep the attempt with its payload. */
export const unbindToken = (token: Token): void => AttemptToken.run(token, undefined)

/** @internal */
export const runningOf = (token: Token): Running | undefined => AttemptToken.running(token)
