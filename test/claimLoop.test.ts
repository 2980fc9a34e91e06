import { describe, expect, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Fiber, Option, TestClock } from "effect"
import type { Claimed, ClaimedAttempt } from "effect-awa/Claim"
import * as Permits from "effect-awa/Permits"
import { keepClaiming } from "../src/internal/claimLoop.js"
import { makeToken } from "../src/internal/makeToken.js"

const wakeup = {
  wait: () => Effect.never,
  waitAny: () => Effect.never,
  hint: () => Effect.void,
  onControl: () => Effect.void,
  mode: Effect.succeed("listening" as const)
}

const attempt = (id: number): ClaimedAttempt => {
  const [job_id, batch_id] = [BigInt(id), BigInt(id)]
  return {
    token: makeToken({ job_id, run_lease: 1n, claim_slot: 256, receipt_id: 2n, batch_id, batch_index: 1 }),
    queue: "q",
    kind: "k",
    args: null,
    attempt: 1,
    maxAttempts: 25,
    priority: 2,
    progress: undefined,
    callbackResult: Option.none(),
    deadlineMicros: undefined,
    deadlineInMillis: undefined
  }
}

describe("a claim that took all it asked for", () => {
  it.live(
    "is followed by the next one before its attempts begin, which are in flight already; the end of claiming waits for them",
    () =>
      Effect.gen(function* () {
        const told: Array<string> = []
        const third = yield* Deferred.make<void>()
        let claims = 0
        const loop = keepClaiming({
          waiting: { count: 0, plenty: 0 },
          claim: {
            take: () =>
              Effect.suspend(() => {
                told.push(`claim ${++claims}`)
                const taken: Claimed = {
                  attempts: claims < 4 ? [attempt(claims)] : [],
                  busy: false,
                  retryAfter: undefined,
                  gated: false
                }
                return Effect.as(claims < 3 ? Effect.void : Deferred.await(third), taken)
              })
          },
          wakeup,
          runtimeId: 1n,
          queue: "q",
          // a permit for each claim
          permits: { ...(yield* Permits.make(2)), acquire: () => Effect.succeed(1) },
          bucket: undefined,
          admit: (attempts) => {
            told.push(...attempts.map(({ token }) => `admit ${token.jobId}`))
            return Effect.delay(
              Effect.sync(() => void told.push(...attempts.map(({ token }) => `begin ${token.jobId}`))),
              "20 millis"
            )
          }
        })
        const fiber = yield* Effect.fork(loop)
        yield* Effect.sleep("100 millis")
        // what is claimed is in flight at once, however long those before it take to begin
        const before = ["claim 1", "admit 1", "claim 2", "admit 2", "begin 1", "claim 3", "begin 2"]
        expect(told).toEqual(before)
        const ended = yield* Effect.fork(Fiber.interrupt(fiber))
        yield* Deferred.succeed(third, undefined) // the claim under way is full, too
        yield* Fiber.join(ended)
        expect(told).toEqual([...before, "admit 3", "begin 3"])
      })
  )

  it.live("whose attempts cannot begin ends the loop with that defect", () =>
    Effect.gen(function* () {
      let claims = 0
      const loop = keepClaiming({
        waiting: { count: 0, plenty: 0 },
        claim: {
          take: () =>
            Effect.sync((): Claimed => ({
              attempts: [attempt(++claims)],
              busy: false,
              retryAfter: undefined,
              gated: false
            }))
        },
        wakeup,
        runtimeId: 1n,
        queue: "q",
        permits: { ...(yield* Permits.make(1)), acquire: () => Effect.succeed(1) },
        bucket: undefined,
        admit: () => Effect.dieMessage("cannot begin")
      })
      const exit = yield* Effect.exit(loop)
      expect(String(exit)).toContain("cannot begin")
      expect(claims).toBeLessThan(4)
    })
  )
})

describe("a claim under way while those before it fail to begin", () => {
  it.live("begins its own, which are in flight: begun by nobody they would be beaten for all the same", () =>
    Effect.gen(function* () {
      const begun: Array<bigint> = []
      let claims = 0
      const loop = keepClaiming({
        waiting: { count: 0, plenty: 0 },
        claim: {
          take: () =>
            Effect.suspend(() => {
              const taken: Claimed = { attempts: [attempt(++claims)], busy: false, retryAfter: undefined, gated: false }
              return Effect.delay(Effect.succeed(taken), "20 millis")
            })
        },
        wakeup,
        runtimeId: 1n,
        queue: "q",
        permits: { ...(yield* Permits.make(2)), acquire: () => Effect.succeed(1) },
        bucket: undefined,
        admit: ([first]) =>
          first?.token.jobId === 1n
            ? Effect.dieMessage("cannot begin")
            : Effect.sync(() => void begun.push(first?.token.jobId ?? 0n))
      })
      expect(String(yield* Effect.exit(loop))).toContain("cannot begin")
      expect(begun).toEqual([2n])
    })
  )
})

describe("permits that are freed one by one", () => {
  const claims = (waiting: { count: number; plenty: number }) =>
    Effect.gen(function* () {
      const asked: Array<number> = []
      const permits = yield* Permits.make(20)
      yield* Effect.forkScoped(
        keepClaiming({
          waiting,
          claim: {
            take: (_, slots) =>
              Effect.sync((): Claimed => {
                asked.push(slots)
                const attempts = Array.from({ length: slots }, (_, i) => attempt(i + 1))
                return { attempts, busy: false, retryAfter: undefined, gated: false }
              })
          },
          wakeup,
          runtimeId: 1n,
          queue: "q",
          permits,
          bucket: undefined,
          admit: () => Effect.void
        })
      )
      yield* TestClock.adjust("2 millis")
      expect(asked).toEqual([20])
      return { asked, permits }
    })

  // two looks at the permits are 3 ms apart
  it.scoped("are claimed for a quarter of them at a time, or what there is soon", () =>
    Effect.gen(function* () {
      const { asked, permits } = yield* claims({ count: 0, plenty: 0 })
      yield* permits.surplus(1)
      yield* TestClock.adjust("1 millis")
      expect(asked).toEqual([20, 1])
    })
  )

  it.scoped("wait for more of them while plenty of the queue's attempts wait for a connection, and not for ever", () =>
    Effect.gen(function* () {
      const waiting = { count: 20, plenty: 0 }
      const { asked, permits } = yield* claims(waiting)
      yield* permits.surplus(6)
      yield* TestClock.adjust("10 millis")
      expect(asked).toEqual([20])
      yield* permits.surplus(4)
      yield* TestClock.adjust("3 millis")
      expect(asked).toEqual([20, 10]) // half of them
      yield* permits.surplus(6)
      yield* TestClock.adjust("10 millis")
      expect(asked).toEqual([20, 10])
      waiting.count = 4
      yield* TestClock.adjust("3 millis")
      expect(asked).toEqual([20, 10, 6]) // a free permit is missed now
      waiting.count = 20
      yield* permits.surplus(1)
      yield* TestClock.adjust("70 millis")
      expect(asked).toEqual([20, 10, 6, 1])
    })
  )
})

describe("a worker whose queue is at its rate", () => {
  it.effect("asks again when the database says, and after half a minute at the latest: the rate may be raised", () =>
    Effect.gen(function* () {
      let asked = 0
      let retryAfter = Duration.seconds(5)
      const fiber = yield* Effect.fork(
        keepClaiming({
          waiting: { count: 0, plenty: 0 },
          claim: {
            take: () =>
              Effect.sync((): Claimed => {
                asked++
                return { attempts: [], busy: false, retryAfter, gated: false }
              })
          },
          wakeup,
          runtimeId: 1n,
          queue: "q",
          permits: yield* Permits.make(1),
          bucket: undefined,
          admit: () => Effect.void
        })
      )
      yield* TestClock.adjust("4 seconds")
      expect(asked).toBe(1)
      retryAfter = Duration.days(1)
      yield* TestClock.adjust("1 second")
      expect(asked).toBe(2)
      yield* TestClock.adjust("30 seconds")
      expect(asked).toBe(3)
      yield* Fiber.interrupt(fiber)
    })
  )
})
