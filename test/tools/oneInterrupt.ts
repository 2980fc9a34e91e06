/**
 * Preloaded by npm scripts that clean up on Ctrl-C. The terminal sends the signal to every process in the foreground, and
 * `npm run` sends it on to its script once more. Effect's `runMain` listens for the first one only, so the second would
 * kill the program in the middle of its finalizers.
 */
const signals = ["SIGINT", "SIGTERM"] as const

/** Within this time, in milliseconds, a repetition is npm's; after it, the user's, who means it. */
const repetition = 1000

for (const signal of signals) {
  let first: number | undefined
  const listener = () => {
    const handledElsewhere = process.listenerCount(signal) > 1
    const now = performance.now()
    if (handledElsewhere || (first !== undefined && now - first < repetition)) {
      first ??= now
      return
    }
    // Nobody else listens: what would have happened without this module happens.
    process.off(signal, listener)
    process.kill(process.pid, signal)
  }
  process.on(signal, listener)
}
