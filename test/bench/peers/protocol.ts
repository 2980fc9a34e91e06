/** What the benchmark asks a peer, and what it answers: README.md beside this file says what each request means. */
import { Schema } from "effect"

/** The database of the peer, and for a peer that needs it a Redis server. */
const place = { url: Schema.String, redis: Schema.optional(Schema.String) }

export const Request = Schema.Union(
  Schema.Struct({ do: Schema.Literal("describe") }),
  Schema.Struct({ do: Schema.Literal("install"), ...place }),
  Schema.Struct({ do: Schema.Literal("enqueue"), ...place, jobs: Schema.Int, queues: Schema.Int }),
  Schema.Struct({ do: Schema.Literal("drain"), ...place, jobs: Schema.Int, queues: Schema.Int, processes: Schema.Int }),
  Schema.Struct({ do: Schema.Literal("owned"), ...place, jobs: Schema.Int }),
  Schema.Struct({ do: Schema.Literal("grouped"), ...place, jobs: Schema.Int }),
  Schema.Struct({ do: Schema.Literal("latency"), ...place, perSecond: Schema.Number, seconds: Schema.Number }),
  Schema.Struct({
    do: Schema.Literal("work"),
    ...place,
    seconds: Schema.Number,
    concurrencyHint: Schema.NullOr(Schema.Int)
  }),
  Schema.Struct({ do: Schema.Literal("idle"), ...place, seconds: Schema.Number })
)
export type Request = typeof Request.Type

export const Description = Schema.Struct({
  name: Schema.String,
  version: Schema.String,
  runtime: Schema.String,
  /** What is used of the settings that the peer's own documentation recommends. */
  configuration: Schema.String,
  /** What holds when the worker dies. */
  guarantee: Schema.String,
  /** How close its caller-owned lane comes to one transaction; null where it has none. */
  owned: Schema.NullOr(Schema.String),
  /** Whether that is one transaction. */
  atomic: Schema.optional(Schema.Boolean),
  /** How it completes a hundred jobs in one transaction of the application; without it, it is not asked to. */
  grouped: Schema.optional(Schema.String)
})
export type Description = typeof Description.Type

export const Count = Schema.Struct({
  jobs: Schema.Number,
  seconds: Schema.Number,
  cpuSeconds: Schema.NullishOr(Schema.Number),
  peakBytes: Schema.NullishOr(Schema.Number),
  timeline: Schema.optional(Schema.Array(Schema.Number))
})
export type Count = typeof Count.Type

const quantiles = { p50: Schema.Number, p95: Schema.Number, p99: Schema.Number, max: Schema.Number }

export const Latency = Schema.Struct({
  samples: Schema.Number,
  ...quantiles,
  /** The parts it is made of, where it has any. */
  parts: Schema.optional(Schema.Record({ key: Schema.String, value: Schema.Struct(quantiles) }))
})
export type Latency = typeof Latency.Type

export const Timeline = Schema.Struct({ timeline: Schema.Array(Schema.Number) })
export type Timeline = typeof Timeline.Type

export const Nothing = Schema.Struct({})

export const Unsupported = Schema.Struct({ unsupported: Schema.String })
