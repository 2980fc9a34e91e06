import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { RegisteredHandler } from "../Handlers.js"
import { nameFault } from "./names.js"

/** An option of the worker breaks its rule; nothing was started. */
export class WorkerMisconfigured extends Schema.TaggedError<WorkerMisconfigured>("effect-awa/WorkerMisconfigured")(
  "WorkerMisconfigured",
  {
    option: Schema.String,
    rule: Schema.String
  }
) {
  override get message(): string {
    return `${this.option}: ${this.rule}`
  }
}

/** The options that can be wrong, as far as they are looked at here. */
interface Checked {
  readonly queues: Readonly<Record<string, { readonly concurrency: number }>>
  readonly beat?: Duration.DurationInput
  readonly busyTick?: Duration.DurationInput
  readonly idleTick?: Duration.DurationInput
}

const maxConcurrency = 10_000

const faultOf = (
  handlers: ReadonlyArray<RegisteredHandler>,
  options: Checked
): { readonly option: string; readonly rule: string } | undefined => {
  const kinds = new Set<string>()
  for (const { kind } of handlers) {
    const fault = nameFault(kind)
    if (fault !== undefined) return { option: `jobs: the kind ${JSON.stringify(kind)}`, rule: fault }
    if (kinds.has(kind)) return { option: `jobs: the kind ${JSON.stringify(kind)}`, rule: "listed once" }
    kinds.add(kind)
  }
  if (Object.keys(options.queues).length === 0) return { option: "queues", rule: "at least one queue" }
  for (const [queue, { concurrency }] of Object.entries(options.queues)) {
    const fault = nameFault(queue)
    if (fault !== undefined) return { option: `queues: the name ${JSON.stringify(queue)}`, rule: fault }
    if (!(Number.isInteger(concurrency) && concurrency >= 1 && concurrency <= maxConcurrency)) {
      return { option: `queues.${queue}.concurrency`, rule: `an integer from 1 to ${maxConcurrency}` }
    }
  }
  for (const option of ["beat", "busyTick", "idleTick"] as const) {
    const value = options[option]
    if (value !== undefined && !(Duration.toMillis(value) > 0 && Duration.isFinite(Duration.decode(value)))) {
      return { option, rule: "a finite duration above zero" }
    }
  }
  return undefined
}

/** @internal */
export const checkOptions = (
  handlers: ReadonlyArray<RegisteredHandler>,
  options: Checked
): Effect.Effect<void, WorkerMisconfigured> =>
  Effect.suspend(() => {
    const fault = faultOf(handlers, options)
    return fault === undefined ? Effect.void : Effect.fail(new WorkerMisconfigured(fault))
  })
