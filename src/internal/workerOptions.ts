import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { Connections } from "../ApplicationPool.js"
import type { RegisteredHandler } from "../Handlers.js"
import { nameFault } from "./names.js"
import {
  atMost,
  between,
  type Bounds,
  countFault,
  durationFault,
  firstFault,
  requiredCountFault,
  requiredDurationFault,
  type OptionFault,
  textFault
} from "./optionRules.js"
import { pauseRule } from "./serviceOptions.js"

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
  readonly name?: string
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

const concurrencyBounds: Bounds = { least: 1, most: 10_000 }
const limitBounds: Bounds = { least: 1, most: 1_000_000 }
/** A timer cannot wait much longer. */
const intervalRule = between("1 millis", "24 days")
const graceRule = atMost("7 days")
const deadlineRule = atMost("24 days")

const kindsFault = (handlers: ReadonlyArray<RegisteredHandler>): OptionFault | undefined => {
  const kinds = new Set<string>()
  for (const { fault, kind } of handlers) {
    const listed = `jobs: the kind ${JSON.stringify(kind)}`
    const rule = nameFault(kind) ?? (kinds.has(kind) ? "listed once" : undefined)
    if (rule !== undefined) return { option: listed, rule }
    if (fault !== undefined) return { option: `${listed}: ${fault.option}`, rule: fault.rule }
    kinds.add(kind)
  }
  return undefined
}

const queuesFault = (queues: Checked["queues"]): OptionFault | undefined => {
  if (Object.keys(queues).length === 0) return { option: "queues", rule: "at least one queue" }
  for (const [queue, { concurrency, rateLimit }] of Object.entries(queues)) {
    const rule = nameFault(queue)
    if (rule !== undefined) return { option: `queues: the name ${JSON.stringify(queue)}`, rule }
    const fault = firstFault(
      {
        concurrency: requiredCountFault(concurrency, concurrencyBounds),
        "rateLimit.limit": rateLimit && requiredCountFault(rateLimit.limit, limitBounds),
        "rateLimit.interval": rateLimit && requiredDurationFault(rateLimit.interval, intervalRule)
      },
      `queues.${queue}.`
    )
    if (fault !== undefined) return fault
  }
  return undefined
}

/** @internal The rule that one of the worker's own options breaks. */
export const workerFault = (handlers: ReadonlyArray<RegisteredHandler>, options: Checked): OptionFault | undefined =>
  kindsFault(handlers) ??
  queuesFault(options.queues) ??
  firstFault({
    concurrency: countFault(options.concurrency, concurrencyBounds),
    name: textFault(options.name),
    beat: durationFault(options.beat, pauseRule),
    busyTick: durationFault(options.busyTick, pauseRule),
    idleTick: durationFault(options.idleTick, pauseRule),
    shutdownGrace: durationFault(options.shutdownGrace, graceRule),
    interruptGrace: durationFault(options.interruptGrace, graceRule),
    shutdownDeadline: durationFault(options.shutdownDeadline, deadlineRule)
  }) ??
  stopFault(options)

const stopFault = (options: Checked): OptionFault | undefined => {
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
): OptionFault | undefined => {
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
    const fault = workerFault(handlers, options) ?? reserveFault(handlers, options, connections)
    return fault === undefined ? Effect.void : Effect.fail(new WorkerMisconfigured(fault))
  })
