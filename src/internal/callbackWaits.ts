import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import { CallbackFailed, CallbackTimedOut, CallbackUnavailable, StaleAttempt } from "../JobError.js"
import type { DatabaseError, RuntimePool } from "../RuntimePool.js"
import type { Wakeup } from "../Wakeup.js"
import { backoff, backoffMillis } from "./backoff.js"
import * as Column from "./column.js"
import type { Token } from "./makeToken.js"
import { tokenColumns, tokenParameters } from "./tokenColumns.js"

/** @internal What a handler's attempt can do with a callback, on the runtime's own connections. */
export interface CallbackWaits {
  /** The callback's id. */
  readonly register: (token: Token, timeoutMillis: number) => Effect.Effect<string, StaleAttempt | CallbackUnavailable>
  /** Waits for the answer, which is the result as JSON. While it waits the attempt cannot be completed. */
  readonly wait: (
    token: Token,
    callbackId: string
  ) => Effect.Effect<unknown, StaleAttempt | CallbackFailed | CallbackTimedOut | CallbackUnavailable>
}

const stale = ({ jobId, runLease }: Token) => new StaleAttempt({ sqlState: "WA001", jobId, runLease })

const errorOf = Schema.decodeUnknownOption(Schema.Struct({ message: Schema.String }))

/** How often a wait looks by itself, in milliseconds: a notification is only a hint. */
const lookMillis = { listening: 30_000, polling: 1_000 }

const busyMillis = (tries: number) => Effect.flatMap(backoffMillis(Math.min(tries, 4), 5), Effect.sleep)

/** @internal */
export const makeCallbackWaits = Effect.fnUntraced(function* (
  pool: RuntimePool["Type"],
  wakeup: Wakeup["Type"]
): Effect.fn.Return<CallbackWaits, never, Scope.Scope> {
  const from = `from unnest(${tokenParameters(1)}) as t(s, b, i, j, l, r)`
  const registerText =
    `select c.answer, c.callback_id::text ${from}, ` +
    `${pool.quotedSchema}.register_callback(s, b, i, j, l, r, $7::float8 * interval '1 millisecond') c`
  const waitText =
    "select c.answer, c.result, c.error, c.left_ms " +
    `${from}, ${pool.quotedSchema}.wait_callback(s, b, i, j, l, r, $7::text::uuid) c`
  const stopText = `select ${pool.quotedSchema}.stop_waiting(s, b, i, j, l, r, $7::text::uuid) ${from}`

  const send = (name: string, text: string, token: Token, argument: unknown) =>
    pool.call({ name, text, values: [...tokenColumns([token]), argument], lockTimeoutMillis: 250 })

  /** Until the database has answered: what cannot heal is the handler's to know. */
  const ask = (
    name: string,
    text: string,
    token: Token,
    argument: unknown,
    tries = 0
  ): Effect.Effect<Column.Row, CallbackUnavailable> =>
    Effect.matchEffect(send(name, text, token, argument), {
      onSuccess: ([row = []]) =>
        row[0] === "busy"
          ? Effect.zipRight(
              busyMillis(tries),
              Effect.suspend(() => ask(name, text, token, argument, tries + 1))
            )
          : Effect.succeed(row),
      onFailure: (error: DatabaseError) =>
        error.retryable
          ? Effect.zipRight(
              backoff(tries),
              Effect.suspend(() => ask(name, text, token, argument, tries + 1))
            )
          : new CallbackUnavailable({ reason: error.message })
    })

  const waiting = new Map<string, Set<Queue.Queue<void>>>()
  yield* wakeup.onControl("callback", (callbackId) => {
    const woken = callbackId === undefined ? waiting.values() : [waiting.get(callbackId) ?? []]
    for (const queues of woken) for (const queue of queues) queue.unsafeOffer(undefined)
  })

  const hints = (callbackId: string) =>
    Effect.acquireRelease(
      Effect.map(Queue.sliding<void>(1), (queue) => {
        const queues = waiting.get(callbackId) ?? new Set()
        waiting.set(callbackId, queues.add(queue))
        return queue
      }),
      (queue) =>
        Effect.sync(() => {
          const queues = waiting.get(callbackId)
          queues?.delete(queue)
          if (queues?.size === 0) waiting.delete(callbackId)
        })
    )

  const wait: CallbackWaits["wait"] = (token, callbackId) =>
    Effect.scoped(
      Effect.gen(function* () {
        const hint = yield* hints(callbackId)
        for (;;) {
          const [answer, result, error, left] = yield* ask("wait-callback", waitText, token, callbackId)
          switch (answer) {
            case "answered":
              return result
            case "failed": {
              const reason = errorOf(error)
              return yield* new CallbackFailed({
                callbackId,
                reason: reason._tag === "Some" ? reason.value.message : "the callback failed"
              })
            }
            case "timed_out":
              return yield* new CallbackTimedOut({ callbackId })
            case "replaced":
              return yield* new CallbackFailed({ callbackId, reason: "the attempt registered another callback" })
            case "waiting": {
              const untilTimeout = Number(Column.bigint(left)) + 1
              const look = lookMillis[yield* wakeup.mode]
              yield* Effect.raceFirst(Queue.take(hint), Effect.sleep(Math.min(untilTimeout, look)))
              break
            }
            default:
              return yield* stale(token)
          }
        }
      })
    ).pipe(
      // what comes after an interruption, a finalization for one, finds the attempt running
      Effect.onInterrupt(() =>
        // a finalizer is uninterruptible, and a timeout cannot cut what is
        Effect.ignore(
          Effect.timeout(Effect.interruptible(ask("stop-waiting", stopText, token, callbackId)), "2 seconds")
        )
      )
    )

  return {
    wait,
    register: (token, timeoutMillis) =>
      Effect.flatMap(ask("register-callback", registerText, token, timeoutMillis), ([answer, id]) =>
        answer === "registered" ? Effect.succeed(Column.string(id)) : stale(token)
      )
  }
})
