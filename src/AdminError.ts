/**
 * What the operators' verbs can fail with.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import type { DatabaseError } from "./RuntimePool.js"

/**
 * An argument breaks a rule: `field` names it. Nothing was changed.
 *
 * @since 0.1.0
 * @category errors
 */
export class AdminRejected extends Schema.TaggedError<AdminRejected>("effect-awa/AdminRejected")("AdminRejected", {
  field: Schema.String,
  rule: Schema.String
}) {
  override get message(): string {
    return `${this.field}: ${this.rule}`
  }
}

/**
 * Something of the queue was still at work when the time was over. The queue stays paused: ask again, or resume it.
 *
 * @since 0.1.0
 * @category errors
 */
export class DrainTimedOut extends Schema.TaggedError<DrainTimedOut>("effect-awa/DrainTimedOut")("DrainTimedOut", {
  queue: Schema.String
}) {
  override get message(): string {
    return `queue ${this.queue} is paused, and its running jobs have not ended in time`
  }
}

/**
 * Caller-owned completion of the queue was not enabled, and nothing was changed: these live runtimes claim of the queue and do not
 * advertise it (contract C-60). Upgrade or stop them, and ask again; one that died is forgotten once it has not beaten for
 * the staleness.
 *
 * @since 0.1.0
 * @category errors
 */
export class CallerOwnedRefused extends Schema.TaggedError<CallerOwnedRefused>("effect-awa/CallerOwnedRefused")(
  "CallerOwnedRefused",
  {
    queue: Schema.String,
    runtimes: Schema.Array(Schema.Struct({ runtimeId: Schema.BigInt, name: Schema.String, beatAt: Schema.DateTimeUtc }))
  }
) {
  override get message(): string {
    const names = this.runtimes.map(({ name, runtimeId }) => `${name} (runtime ${runtimeId})`)
    return `caller-owned completion of the queue ${this.queue} stays disabled: ${names.join(", ")} cannot take part`
  }
}

/**
 * Errors of a verb.
 *
 * @since 0.1.0
 * @category errors
 */
export type AdminError = AdminRejected | DatabaseError
