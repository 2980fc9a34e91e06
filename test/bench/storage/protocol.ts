/** What the process of a benchmark and the processes of its load say to each other. */
import { Schema } from "effect"

/** How jobs of a load differ from plain ones: the share of each, from 0 to 1. */
export const Mix = Schema.Struct({
  /** Fails once. */
  retry: Schema.Number,
  /** Enqueued for one to five seconds later. */
  scheduled: Schema.Number,
  /** Has a unique key; every second one shares it with another job. */
  unique: Schema.Number,
  /** Runs longer than three beats. */
  long: Schema.Number,
  /** Asks once to be run later. */
  snooze: Schema.Number,
  /** Cancelled by an operator, most of them before they run. */
  cancel: Schema.Number,
  /** Waits for a callback. */
  callback: Schema.Number
})
export type Mix = typeof Mix.Type

export const plain: Mix = { retry: 0, scheduled: 0, unique: 0, long: 0, snooze: 0, cancel: 0, callback: 0 }

export const WorkerLoad = Schema.Struct({
  role: Schema.Literal("worker"),
  url: Schema.String,
  queue: Schema.String,
  concurrency: Schema.Number,
  beatMillis: Schema.Number,
  longMillis: Schema.Number,
  /** How long a snoozed job sleeps, and a failed one. */
  againMillis: Schema.Number,
  pollMillis: Schema.Number,
  tickMillis: Schema.Number,
  maintenance: Schema.Struct({
    stalenessMillis: Schema.Number,
    segmentAgeMillis: Schema.Number,
    segmentEntries: Schema.Number,
    historyMillis: Schema.Number,
    /** How long jobs that ended without success are kept; 30 days unless said otherwise. */
    terminalMillis: Schema.optional(Schema.Number)
  })
})
export type WorkerLoad = typeof WorkerLoad.Type

export const ProducerLoad = Schema.Struct({
  role: Schema.Literal("producer"),
  url: Schema.String,
  queue: Schema.String,
  seed: Schema.Number,
  mix: Mix,
  batch: Schema.Number,
  /** Jobs a second; without it as many as the worker takes. */
  rate: Schema.optional(Schema.Number),
  /** Without a rate: how many may wait in the ring. */
  waiting: Schema.Number,
  /** How many in all; without it until told to stop. */
  jobs: Schema.optional(Schema.Number),
  tickMillis: Schema.Number
})
export type ProducerLoad = typeof ProducerLoad.Type

export const Load = Schema.Union(WorkerLoad, ProducerLoad)
export type Load = typeof Load.Type

const counts = Schema.Record({ key: Schema.String, value: Schema.Number })

/** Counters since the start, and the latencies since the last sample. */
export const Sample = Schema.Struct({
  /** Milliseconds since 1970, with fractions. */
  at: Schema.Number,
  counters: counts,
  latency: counts
})
export type Sample = typeof Sample.Type

export const FromChild = Schema.Union(
  Schema.Struct({ type: Schema.Literal("ready") }),
  Schema.Struct({ type: Schema.Literal("sample"), sample: Sample }),
  Schema.Struct({ type: Schema.Literal("failed"), reason: Schema.String })
)
export type FromChild = typeof FromChild.Type

export const ToChild = Schema.Union(
  /** How many fresh jobs the worker has started: the producer's brake. */
  Schema.Struct({ type: Schema.Literal("taken"), count: Schema.Number }),
  Schema.Struct({ type: Schema.Literal("stop") })
)
export type ToChild = typeof ToChild.Type
