/**
 * The jobs of the child processes. What a handler does is in its payload, so that a test writes it down where it looks at the
 * consequences.
 */
import { Job } from "effect-awa"
import { Schema } from "effect"

export const Deed = Schema.Literal(
  "finish",
  /** For `millis`, interruptibly; says so when its own scope closes. */
  "sleep",
  /** For `millis`, and no interruption is heard. */
  "ignore-interruption",
  /** Blocks the event loop for `millis`. */
  "block",
  /** When it is interrupted. */
  "block-at-interruption",
  "kill",
  "exit",
  "exhaust-memory",
  /** Throws in a timer of its own, and goes on. */
  "throw-in-timer",
  /** Leaves a promise that rejects, and goes on. */
  "reject-unhandled",
  /** Of a caller-owned job: sleeps inside its transaction for `millis`, after its write. */
  "hold-transaction"
)

const payload = Schema.Struct({
  tag: Schema.String,
  deed: Deed,
  millis: Schema.optionalWith(Schema.Int, { exact: true }),
  /** Only the first so many attempts do the deed; the others do nothing. */
  attempts: Schema.optionalWith(Schema.Int, { exact: true })
})
export type Payload = typeof payload.Type

/** Completed by the runtime. */
export const Work = Job.make("work", { payload })
/** Completed by its handler, together with its row. */
export const Pay = Job.make("pay", { payload })

/** What a child is told by its environment. Times are in milliseconds. */
export const Settings = Schema.parseJson(
  Schema.Struct({
    database: Schema.String,
    application: Schema.String,
    name: Schema.optionalWith(Schema.String, { default: () => "child" }),
    concurrency: Schema.optionalWith(Schema.Int, { default: () => 10 }),
    beat: Schema.optionalWith(Schema.Int, { default: () => 250 }),
    staleness: Schema.optionalWith(Schema.Int, { default: () => 1_500 }),
    shutdownGrace: Schema.optionalWith(Schema.Int, { default: () => 300 }),
    interruptGrace: Schema.optionalWith(Schema.Int, { default: () => 5_000 }),
    shutdownDeadline: Schema.optionalWith(Schema.Int, { default: () => 30_000 }),
    applicationTransaction: Schema.optionalWith(Schema.Int, { default: () => 5_000 }),
    /** A layer of the program that never has started, or whose finalizer never ends. */
    hang: Schema.optionalWith(Schema.Literal("start", "finalizer"), { exact: true }),
    /** Drains when its standard input ends, then ends. */
    drainOnEnd: Schema.optionalWith(Schema.Boolean, { default: () => false })
  })
)
