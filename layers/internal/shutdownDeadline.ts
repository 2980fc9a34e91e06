import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Runtime from "effect/Runtime"
import { Worker as Thread } from "node:worker_threads"

/** What `timeout` exits with. */
const exitCode = 124

/** How much later than this process itself its watchdog acts, in milliseconds. */
const slackMillis = 1_000

/** The longest that a timer can wait, in milliseconds. */
const maxMillis = 2_147_483_647 - slackMillis

/**
 * A thread of its own that kills the process in time: while a handler blocks the event loop no timer of ours fires. It is
 * given as text, so that it is found in a bundle too, and runs without the program's loaders.
 */
const startWatchdog = (millis: number): Thread | undefined => {
  try {
    const thread = new Thread(
      'const { workerData } = require("node:worker_threads"); setTimeout(() => process.kill(process.pid, "SIGKILL"), workerData)',
      { eval: true, workerData: millis, env: {}, execArgv: [] }
    )
    thread.on("error", () => {}) // the timer remains
    thread.unref()
    return thread
  } catch {
    return undefined
  }
}

/**
 * Runs what closes the program, and ends the process when it has not ended in time, whatever hangs: with the exit code 124, or
 * by SIGKILL while the event loop is blocked.
 *
 * @internal
 */
export const withinDeadline = <A>(deadline: Duration.Duration, closing: Effect.Effect<A>): Effect.Effect<A> =>
  Effect.gen(function* () {
    const run = Runtime.runFork(yield* Effect.runtime())
    const millis = Math.min(Duration.toMillis(deadline), maxMillis)
    const start = Effect.sync(() => {
      const timer = setTimeout(() => {
        run(
          Effect.logFatal(
            `The worker has not stopped within ${Duration.format(deadline)}: the process ends, and leaves its attempts to rescue`
          )
        )
        process.exit(exitCode)
      }, millis)
      return { timer, watchdog: startWatchdog(millis + slackMillis) }
    })
    return yield* Effect.acquireUseRelease(
      start,
      () => closing,
      ({ timer, watchdog }) =>
        Effect.sync(() => {
          clearTimeout(timer)
          watchdog?.terminate().catch(() => undefined)
        })
    )
  })
