import { describe, expect, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { DatabaseError } from "effect-awa/RuntimePool"
import { makeCallbackWaits } from "../src/internal/callbackWaits.js"
import { makeToken } from "../src/internal/makeToken.js"

const token = makeToken({ job_id: 1n, run_lease: 1n, claim_slot: 256, receipt_id: 1n, batch_id: 1n, batch_index: 1 })

describe("a wait for a callback", () => {
  it.scopedLive("that is interrupted while the database is gone ends within its time", () =>
    Effect.gen(function* () {
      let waits = 0
      const { wait } = yield* makeCallbackWaits(
        {
          schema: "awa",
          quotedSchema: '"awa"',
          connections: 1,
          origin: "",
          call: ({ name }) =>
            name === "wait-callback" && waits++ === 0
              ? Effect.succeed([["waiting", null, null, 60_000n]])
              : new DatabaseError({ operation: name, retryable: true, reason: "gone" }),
          listen: () => Effect.never
        },
        {
          wait: () => Effect.never,
          waitAny: () => Effect.never,
          hint: () => Effect.void,
          onControl: () => Effect.void,
          mode: Effect.succeed("listening")
        }
      )
      const waiting = yield* Effect.fork(wait(token, "id"))
      yield* Effect.sleep("20 millis")
      expect(waits).toBe(1)
      const startedAt = performance.now()
      yield* Effect.timeout(Effect.disconnect(Fiber.interrupt(waiting)), "4 seconds")
      expect(performance.now() - startedAt).toBeLessThan(3_500)
    })
  )
})
