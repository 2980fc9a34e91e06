import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Runtime from "effect/Runtime"
import type * as Scope from "effect/Scope"

/** The signals that ask a process to stop, and what it exits with when it is to stop at once: 128 and the signal's number. */
const exitCodes = { SIGINT: 130, SIGTERM: 143 } as const

type Signal = keyof typeof exitCodes

const signals: ReadonlyArray<Signal> = ["SIGINT", "SIGTERM"]

/**
 * Within this time, in milliseconds, a signal that comes again is the same one: a terminal sends its Ctrl-C to every process
 * in the foreground, and `npm run` sends it on to its script once more. After it, it is the user's, who means it.
 */
const repetition = 1_000

/**
 * Listens for as long as the scope is open. The first signal completes what is answered here, the second one ends the process at
 * once. `runMain` listens for the first one only, and then no longer: the next would be the system's to act on, which in a
 * container's first process means nothing at all.
 *
 * @internal
 */
export const stopSignals: Effect.Effect<Effect.Effect<void>, never, Scope.Scope> = Effect.gen(function* () {
  const asked = yield* Deferred.make<void>()
  const run = Runtime.runFork(yield* Effect.runtime())
  let first: { readonly signal: Signal; readonly at: number } | undefined
  const onSignal = (signal: Signal): void => {
    const now = performance.now()
    if (first === undefined) {
      first = { signal, at: now }
      run(Effect.logInfo(`${signal}: the worker stops; a second signal ends it at once`))
      Deferred.unsafeDone(asked, Effect.void)
      return
    }
    if (signal === first.signal && now - first.at < repetition) return
    run(Effect.logFatal(`${signal} again: the worker ends at once, and leaves its attempts to rescue`))
    process.exit(exitCodes[signal])
  }
  yield* Effect.acquireRelease(
    Effect.sync(() => signals.forEach((signal) => process.on(signal, onSignal))),
    () => Effect.sync(() => signals.forEach((signal) => process.off(signal, onSignal)))
  )
  return Deferred.await(asked)
})
