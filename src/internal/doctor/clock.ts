import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { MigrationFailed } from "../../MigrationError.js"
import type { Found } from "./finding.js"
import type { Ask } from "./session.js"

const Row = Schema.Tuple(Schema.Struct({ millis: Schema.BigIntFromSelf }))

/** Every time that counts is the server's; this is about logs that are read side by side, and about delays told as times. */
const tolerated = 1_000

/** @internal Of three answers the quickest says most: the offset is known to half its round trip. */
export const checkClock = (ask: Ask): Effect.Effect<ReadonlyArray<Found>, MigrationFailed> =>
  Effect.gen(function* () {
    let best = { offset: 0, uncertain: Infinity }
    for (let attempt = 0; attempt < 3; attempt++) {
      const before = yield* Clock.currentTimeMillis
      const [{ millis }] = yield* ask(
        "compare clocks",
        "select (extract(epoch from clock_timestamp()) * 1000)::bigint as millis",
        [],
        Row
      )
      const after = yield* Clock.currentTimeMillis
      const uncertain = (after - before) / 2
      if (uncertain < best.uncertain) best = { offset: Math.round((before + after) / 2 - Number(millis)), uncertain }
    }
    return Math.abs(best.offset) - best.uncertain <= tolerated
      ? []
      : [
          {
            code: "clock-offset",
            object: "this process's clock",
            found: `${Math.abs(best.offset)} ms ${best.offset > 0 ? "ahead of" : "behind"} the server's`,
            expected: `within ${tolerated} ms`,
            advice: "synchronize both by NTP"
          }
        ]
  })
