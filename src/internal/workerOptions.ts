import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { Connections } from "../ApplicationPool.js"
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

interface QueueChecked {
  readonly concurrency: number
  readonly rateLimit?: { readonly limit: number; readonly interval: Duration.DurationInput }
}

/** The options that can be wrong, as far as they are looked at here. */
interface Checked {
  readonly queues: Readonly<Record<string, QueueChecked>>
  readonly concurrency?: number
  readonly beat?: Duration.DurationInput
  readonly busyTick?: Duration.DurationInput
  readonly idleTick?: Duration.DurationInput
  readonly shutdownGrace?: Duration.DurationInput
  readonly interruptGrace?: Duration.DurationInput
  readonly shutdownDeadline?: Duration.DurationInput
}

/** What comes after the attempts, when the database does not answer: the loops, the runtime's row, what is under way, the pools. */
const closing = Duration.seconds(25)

/** @internal How long each part of a stop may take. */
export const stopTimes = (
  options: Pick<Checked, "shutdownGrace" | "interruptGrace" | "shutdownDeadline">
): {
  readonly grace: Duration.Duration
  readonly interruptGrace: Duration.Duration
  readonly deadline: Duration.Duration
} => {
  const grace = Duration.decode(options.shutdownGrace ?? "30 seconds")
  const interruptGrace = Duration.decode(options.interruptGrace ?? "10 seconds")
  const graces = Duration.sum(grace, interruptGrace)
  return { grace, interruptGrace, deadline: Duration.decode(options.shutdownDeadline ?? Duration.sum(graces, closing)) }
}

const maxConcurrency = 10_000

const isDuration = (value: Duration.DurationInput): boolean =>
  Duration.toMillis(value) > 0 && Duration.isFinite(Duration.decode(value))

const isCount = (value: number, most: number): boolean => Number.isInteger(value) && value >= 1 && value <= most

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
  if (options.concurrency !== undefined && !isCount(options.concurrency, maxConcurrency)) {
    return { option: "concurrency", rule: `an integer from 1 to ${maxConcurrency}` }
  }
  for (const [queue, { concurrency, rateLimit }] of Object.entries(options.queues)) {
    const fault = nameFault(queue)
    if (fault !== undefined) return { option: `queues: the name ${JSON.stringify(queue)}`, rule: fault }
    if (!isCount(concurrency, maxConcurrency)) {
      return { option: `queues.${queue}.concurrency`, rule: `an integer from 1 to ${maxConcurrency}` }
    }
    if (rateLimit !== undefined && !isCount(rateLimit.limit, 1_000_000)) {
      return { option: `queues.${queue}.rateLimit.limit`, rule: "an integer from 1 to 1000000" }
    }
    if (rateLimit !== undefined && !isDuration(rateLimit.interval)) {
      return { option: `queues.${queue}.rateLimit.interval`, rule: "a finite duration above zero" }
    }
  }
  for (const option of ["beat", "busyTick", "idleTick"] as const) {
    const value = options[option]
    if (value !== undefined && !isDuration(value)) {
      return { option, rule: "a finite duration above zero" }
    }
  }
  return stopFault(options)
}

const stopFault = (options: Checked): { readonly option: string; readonly rule: string } | undefined => {
  for (const option of ["shutdownGrace", "interruptGrace", "shutdownDeadline"] as const) {
    const value = options[option]
    if (value !== undefined && !Duration.isFinite(Duration.decode(value))) return { option, rule: "a finite duration" }
  }
  const { deadline, grace, interruptGrace } = stopTimes(options)
  // otherwise the process would end before it has given anything back
  return Duration.lessThan(deadline, Duration.sum(grace, interruptGrace))
    ? { option: "shutdownDeadline", rule: "no less than shutdownGrace and interruptGrace together" }
    : undefined
}

/**
 * One bound of connections for all: as many caller-owned attempts as the worker runs at once must fit beside the runtime's
 * reserve, unless their transactions are bounded by themselves (contract C-32).
 */
const reserveFault = (
  handlers: ReadonlyArray<RegisteredHandler>,
  { concurrency, queues }: Checked,
  connections: Connections
): { readonly option: string; readonly rule: string } | undefined => {
  if (connections.mode === "separate" || connections.callerOwned !== undefined) return undefined
  if (!handlers.some(({ mode }) => mode === "caller-owned")) return undefined
  const inQueues = Object.values(queues).reduce((sum, queue) => sum + queue.concurrency, 0)
  const atOnce = Math.min(inQueues, concurrency ?? inQueues)
  const { application, runtime } = connections
  return atOnce <= application
    ? undefined
    : {
        option: concurrency === undefined ? "queues" : "concurrency",
        rule:
          `${atOnce} caller-owned attempts at once do not leave the runtime its reserve: of ${application + runtime} shared ` +
          `connections ${application} are the application's; lower the concurrency, or bound their transactions by callerOwned`
      }
}

/** @internal */
export const checkOptions = (
  handlers: ReadonlyArray<RegisteredHandler>,
  options: Checked,
  connections: Connections
): Effect.Effect<void, WorkerMisconfigured> =>
  Effect.suspend(() => {
    const fault = faultOf(handlers, options) ?? reserveFault(handlers, options, connections)
    return fault === undefined ? Effect.void : Effect.fail(new WorkerMisconfigured(fault))
  })
