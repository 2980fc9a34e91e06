/** The jobs of the storm. Each is about an order: a row of the application, written in the transaction that enqueues. */
import { Schema } from "effect"
import { Job, RetryPolicy } from "effect-awa"

export class Declined extends Schema.TaggedError<Declined>()("Declined", {}) {}

const order = Schema.Struct({
  order: Schema.String,
  /** How often it is to go otherwise before it goes well. */
  times: Schema.optionalWith(Schema.Int, { default: () => 0 })
})

/** Crashes count as attempts, and here are many: no job is to end for want of them. */
const patient = {
  payload: order,
  error: Declined,
  maxAttempts: 500,
  retry: RetryPolicy.make({ base: "100 millis", maximum: "2 seconds" })
}

/** Its queue has a deadline: what a fault holds for longer is taken back and given to another. */
export const Charge = Job.make("charge", { ...patient, queue: "billing" })
export const Timed = Job.make("timed", patient)
export const Flaky = Job.make("flaky", patient)
export const Snoozer = Job.make("snoozer", patient)
export const Sync = Job.make("sync", patient)
/** Ordinary ones. */
export const Notify = Job.make("notify", patient)
export const Stubborn = Job.make("stubborn", patient)
export const Doomed = Job.make("doomed", { ...patient, maxAttempts: 2 })

export const jobs = [Charge, Timed, Flaky, Snoozer, Sync, Notify, Stubborn, Doomed] as const

/** What an order must have brought about when all is over: one row, at least one, or a failure and no row. */
export type Expectation = "effect" | "delivery" | "failure"
