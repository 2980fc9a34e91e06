/**
 * The storm: faults from a shuffled deck, one every few seconds, so that each has its turn. Faults may overlap; those that take
 * the server away do not. A fault that found nothing to befall is tried again.
 */
import { Effect, Ref } from "effect"
import type { Random } from "../stress/random.js"
import type { Fault } from "./faults.js"
import { say } from "./report.js"

export interface Tally {
  injected: number
  tookEffect: number
  failed: number
}

const shuffled = <A>(items: ReadonlyArray<A>, random: Random): Array<A> => {
  const all = [...items]
  for (let i = all.length - 1; i > 0; i--) {
    const j = random.between(0, i)
    const [a, b] = [all[i], all[j]]
    if (a === undefined || b === undefined) continue
    all[i] = b
    all[j] = a
  }
  return all
}

/** No fault takes longer: waiting, lasting, and a restart of the server. */
const bound = "90 seconds"

/** How often a fault that has not taken effect yet is tried when the time is over, and for how long at all. */
const lastTries = 4
const lastTriesMillis = 180_000

export const storm = (faults: ReadonlyArray<Fault>, random: Random, millis: number) =>
  Effect.gen(function* () {
    const tallies = new Map<string, Tally>(faults.map(({ name }) => [name, { injected: 0, tookEffect: 0, failed: 0 }]))
    const alone = yield* Effect.makeSemaphore(1)
    const underWay = yield* Ref.make(0)
    const startedAt = performance.now()

    const inject = (fault: Fault) =>
      Effect.gen(function* () {
        const tally = tallies.get(fault.name)
        if (tally === undefined) return
        tally.injected++
        const effects = yield* Effect.scoped(fault.inject).pipe(
          Effect.timeout(bound),
          Effect.catchAll((error) =>
            Effect.as(
              Effect.sync(() => {
                tally.failed++
                say(`${fault.name}: could not be injected: ${String(error)}`)
              }),
              0
            )
          )
        )
        tally.tookEffect += effects
        say(`${fault.name}: ${effects}`)
      }).pipe(fault.exclusive === true ? alone.withPermits(1) : (effect) => effect)

    const launch = (fault: Fault) =>
      Effect.acquireUseRelease(
        Ref.update(underWay, (n) => n + 1),
        () => inject(fault),
        () => Ref.update(underWay, (n) => n - 1)
      ).pipe(Effect.interruptible, Effect.forkScoped)

    let deck: Array<Fault> = []
    while (performance.now() - startedAt < millis) {
      if (deck.length === 0) deck = shuffled(faults, random)
      const fault = deck.shift()
      if (fault !== undefined) yield* launch(fault)
      yield* Effect.sleep(random.between(2_500, 5_000))
    }
    yield* Ref.get(underWay).pipe(Effect.delay("100 millis"), Effect.repeat({ until: (n) => n === 0 }))
    const overAt = performance.now()
    const missing = (fault: Fault) =>
      (tallies.get(fault.name)?.tookEffect ?? 0) === 0 && performance.now() - overAt < lastTriesMillis
    for (const fault of faults) {
      for (let n = 0; n < lastTries && missing(fault); n++) yield* inject(fault)
    }
    return tallies
  })
