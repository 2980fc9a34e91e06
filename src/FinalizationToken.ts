/**
 * An attempt's route to its evidence (contract C-11).
 *
 * @since 0.1.0
 */
import * as Option from "effect/Option"
import * as internal from "./internal/makeToken.js"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId: typeof internal.TokenTypeId = internal.TokenTypeId

/**
 * The immutable identity of one attempt, with which the database finds its evidence directly. Opaque: only a claim makes
 * one, and a look-alike is refused.
 *
 * @since 0.1.0
 * @category models
 */
export interface FinalizationToken extends internal.Token {}

/**
 * The fields of a token, with the names of `complete_job`'s parameters (contract C-15).
 *
 * @since 0.1.0
 * @category models
 */
export interface Portable extends internal.TokenFields {}

/**
 * Whether the value is a token that a claim of this process made.
 *
 * @since 0.1.0
 * @category guards
 */
export const isFinalizationToken = (value: unknown): value is FinalizationToken => internal.isToken(value)

/**
 * The token's fields, for a driver that calls `complete_job` by itself. None for a value that no claim made.
 *
 * @since 0.1.0
 * @category getters
 */
export const portable = (token: FinalizationToken): Option.Option<Portable> =>
  Option.map(Option.fromNullable(internal.tokenFields(token)), (fields) => Object.freeze({ ...fields }))
