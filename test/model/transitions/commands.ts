/** What a sequence is made of. Targets are numbers that the driver takes modulo what is there, so that any part of a sequence is one. */
import { FastCheck as fc } from "effect"

/** A delay of a millisecond, in minutes: due before a transaction that is open commits. */
export const moment = 1 / 60_000

const pick = fc.nat(60)
const queue = fc.constantFrom("a", "a", "a", "b", "c")
const hours = (most: number) => fc.integer({ min: 1, max: most }).map((n) => n * 60)
const delay = fc.oneof(
  { weight: 5, arbitrary: fc.constant(undefined) },
  { weight: 1, arbitrary: fc.constant(0) },
  { weight: 3, arbitrary: hours(2) }
)
const progress = fc.option(fc.nat(9), { nil: undefined })

const rarely = fc.integer({ min: 0, max: 3 }).map((n) => n === 0)

const unique = fc
  .record({
    by: fc.constantFrom(undefined, undefined, ["queue" as const, "args" as const], []),
    key: fc.constantFrom(undefined, "x"),
    states: fc.nat(3),
    window: fc.option(hours(2), { nil: undefined }),
    conflict: fc.constantFrom(
      "skip" as const,
      "skip" as const,
      "replace" as const,
      "replace" as const,
      "error" as const
    )
  })
  .map((one) => ({
    ...one,
    by: one.by?.length === 0 && one.key === undefined ? undefined : one.by,
    window: one.states > 1 ? (one.window ?? 60) : one.window
  }))

const newJob = fc.record({
  queue,
  args: fc.nat(2),
  priority: fc.constantFrom(2, 2, 2, 1, 3, 4),
  maxAttempts: fc.constantFrom(1, 2, 3, 25),
  delay: fc.oneof({ weight: 8, arbitrary: delay }, { weight: 1, arbitrary: fc.constant(moment) }),
  unique: fc.option(unique, { nil: undefined, freq: 2 })
})

const outcome = fc.constantFrom(
  "completed" as const,
  "completed" as const,
  "retried" as const,
  "retried" as const,
  "snoozed" as const,
  "released" as const,
  "gated" as const,
  "failed" as const,
  "cancelled" as const,
  "discarded" as const,
  "dead_lettered" as const
)
const ending = fc.record({ pick, outcome, delay, error: fc.boolean(), progress })
/** Mostly of what is open; otherwise any token that was ever issued. */
const stale = fc.integer({ min: 0, max: 5 }).map((n) => n === 0)

const of = <const Name extends string, Fields>(weight: number, name: Name, fields: fc.Arbitrary<Fields>) => ({
  weight,
  arbitrary: fields.map((value) => ({ ...value, do: name }))
})
const nothing = fc.constant({})

export const command = fc.oneof(
  of(8, "enqueue", fc.record({ inside: rarely, items: fc.array(newJob, { minLength: 1, maxLength: 3, size: "max" }) })),
  of(9, "claim", fc.record({ queue, limit: fc.constantFrom(1, 2, 10, 10) })),
  of(
    6,
    "close",
    fc.record({ stale, items: fc.array(ending, { minLength: 1, maxLength: 3, size: "max" }), state: fc.boolean() })
  ),
  of(1, "repeat", fc.record({ outcome })),
  of(2, "settle", fc.record({ stale, item: ending })),
  of(4, "complete", fc.record({ stale, pick, inside: fc.boolean(), progress })),
  of(1, "forge", fc.record({ pick, how: fc.nat(6), through: fc.nat(5) })),
  of(3, "beat", fc.record({ stale, picks: fc.array(pick, { minLength: 1, maxLength: 3, size: "max" }), progress })),
  of(1, "begin", nothing),
  of(3, "commit", nothing),
  of(2, "rollback", nothing),
  of(1, "savepoint", nothing),
  of(1, "rollbackTo", nothing),
  of(4, "advance", fc.record({ times: fc.integer({ min: 1, max: 2 }) })),
  of(5, "promote", fc.record({ promoter: fc.nat(2), limit: fc.constantFrom(1, 2, 100, 100) })),
  of(4, "rescue", fc.record({ staleness: fc.constantFrom(0, 30, 30) })),
  of(2, "rotate", fc.record({ calls: fc.integer({ min: 1, max: 2 }) })),
  of(2, "turn", nothing),
  of(2, "spill", fc.record({ limit: fc.constantFrom(1, 100) })),
  of(1, "drain", nothing),
  of(1, "prune", nothing),
  of(2, "materialize", fc.record({ limit: fc.constantFrom(1, 100) })),
  of(1, "sweep", nothing),
  of(4, "register", fc.record({ stale, pick, timeout: hours(2) })),
  of(3, "wait", fc.record({ stale, pick, other: fc.boolean() })),
  of(1, "stopWaiting", fc.record({ stale, pick })),
  of(4, "park", fc.record({ stale, pick, progress, other: fc.integer({ min: 0, max: 4 }).map((n) => n === 0) })),
  of(
    5,
    "answer",
    fc.record({
      pick,
      verb: fc.constantFrom(
        "resume" as const,
        "resume" as const,
        "complete" as const,
        "fail" as const,
        "heartbeat" as const
      ),
      result: fc.nat(9)
    })
  ),
  of(2, "cancel", fc.record({ picks: fc.array(pick, { minLength: 1, maxLength: 2 }) })),
  of(1, "delete", fc.record({ picks: fc.array(pick, { minLength: 1, maxLength: 2 }) })),
  of(
    2,
    "reprioritize",
    fc.record({ picks: fc.array(pick, { minLength: 1, maxLength: 3 }), priority: fc.integer({ min: 1, max: 4 }) })
  ),
  of(2, "redrive", fc.record({ picks: fc.array(pick, { minLength: 1, maxLength: 3 }) })),
  of(1, "pause", fc.record({ queue })),
  of(1, "resume", fc.record({ queue })),
  of(2, "disable", fc.record({ queue })),
  of(2, "enable", fc.record({ queue }))
)

export type Command = typeof command extends fc.Arbitrary<infer A> ? A : never

/** Some commands, and whether everything is then brought to its end. */
export const sequence = fc.record({
  commands: fc.array(command, { minLength: 5, maxLength: 28, size: "max" }),
  finish: fc.boolean()
})
export type Sequence = { readonly commands: ReadonlyArray<Command>; readonly finish: boolean }
