/**
 * What a job definition says of itself to those who know only that it is one.
 *
 * @since 0.1.0
 */
import * as Predicate from "effect/Predicate"
import type * as SchemaAST from "effect/SchemaAST"

/**
 * Where a job definition keeps its `JobDefinition`. The same symbol in every copy of this package.
 *
 * @since 0.1.0
 * @category symbols
 */
export const TypeId: unique symbol = Symbol.for("effect-awa/Job")

/**
 * @since 0.1.0
 * @category models
 */
export interface JobDefinition {
  readonly kind: string
  /** The payload's schema, of which the encoded side is stored. */
  readonly payload: SchemaAST.AST
  readonly queue: string | undefined
  readonly priority: number | undefined
  readonly maxAttempts: number | undefined
}

/**
 * What every job definition has, whatever its kind and its payload.
 *
 * @since 0.1.0
 * @category models
 */
export interface Defined {
  readonly [TypeId]: JobDefinition
}

/**
 * Whether a value is a job definition, as `Job.make` makes it.
 *
 * @example
 * ```ts
 * import { Schema } from "effect"
 * import { Job, JobDefinition } from "effect-awa"
 *
 * export const yes = JobDefinition.isDefined(Job.make("greet", { payload: Schema.String }))
 * ```
 *
 * @since 0.1.0
 * @category guards
 */
export const isDefined = (value: unknown): value is Defined => Predicate.hasProperty(value, TypeId)
