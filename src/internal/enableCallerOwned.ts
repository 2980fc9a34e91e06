import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { type AdminError, CallerOwnedRefused } from "../AdminError.js"
import type { DatabaseError } from "../PoolError.js"
import type { RuntimePool } from "../RuntimePool.js"
import * as Column from "./column.js"

/** How many jobs one statement makes runnable. */
const partSize = 1_000

const decodeRuntimes = Schema.decodeUnknownOption(
  Schema.parseJson(
    Schema.Array(
      Schema.Struct({
        runtimeId: Schema.propertySignature(Schema.BigInt).pipe(Schema.fromKey("runtime_id")),
        name: Schema.String,
        beatAt: Schema.propertySignature(Schema.DateTimeUtc).pipe(Schema.fromKey("beat_at"))
      })
    )
  )
)

const refusal = (queue: string, error: DatabaseError): CallerOwnedRefused | undefined => {
  if (error.sqlState !== "55000") return undefined
  const runtimes = decodeRuntimes(error.detail)
  return Option.isSome(runtimes) ? new CallerOwnedRefused({ queue, runtimes: runtimes.value }) : undefined
}

/**
 * Enables the queue with the first part, and goes on until a part is not full. Repeatable: what a crash leaves behind, or somebody
 * held, the next call or a sweep takes.
 *
 * @internal
 */
export const makeEnableCallerOwned = (
  pool: RuntimePool["Type"],
  staleness: string,
  toRejected: (error: DatabaseError) => AdminError
) => {
  const text = `select ${pool.quotedSchema}.enable_caller_owned($1, $2::text::interval, $3::integer)`
  const part = (queue: string) =>
    pool.call({ name: "enable_caller_owned", text, values: [queue, staleness, partSize], timeoutMillis: 30_000 }).pipe(
      Effect.map(([row]) => Column.number(row?.[0])),
      Effect.mapError((error) => refusal(queue, error) ?? toRejected(error))
    )
  return Effect.fnUntraced(function* (queue: string) {
    let moved = 0
    for (;;) {
      const count = yield* part(queue)
      moved += count
      if (count < partSize) return moved
    }
  })
}
