/**
 * The names of queues and kinds: one rule, the same here and in SQL (`name_fault`).
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { nameFault } from "./internal/names.js"

/**
 * The name of a queue: 1 to 255 bytes of UTF-8 without control characters.
 *
 * @example
 * ```ts
 * import { QueueName } from "effect-awa"
 *
 * const billing: QueueName.QueueName = QueueName.make("billing")
 * ```
 *
 * @since 0.1.0
 * @category schemas
 */
export const QueueName = Schema.String.pipe(
  Schema.filter((name) => nameFault(name)),
  Schema.brand("effect-awa/QueueName")
)

/**
 * @since 0.1.0
 * @category models
 */
export type QueueName = typeof QueueName.Type

/**
 * Makes a `QueueName`; throws when the rule is broken.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (name: string): QueueName => QueueName.make(name)
