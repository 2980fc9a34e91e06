/** The rounds of a run, in their order; what the journal already has is not done again. */
import { type Calibration, calibrate } from "./calibration.js"
import { PeerCannot } from "./ask.js"
import { entriesOf, type EntryOf, type Journal } from "./journal.js"
import type { Measure } from "./measure.js"
import { measures } from "./measures.js"
import type { Options } from "./options.js"
import type { Peer } from "./peers.js"
import type { Context } from "./session.js"
import { roundStates } from "./summary.js"
import { short } from "./tables.js"

type Place = Pick<EntryOf<"result">, "measure" | "round" | "attempt">

const say = (text: string): void => console.log(`  ${new Date().toISOString().slice(11, 19)} ${text}`)

/** A rate that is found once in a run, and remembered by its journal. */
export const rememberedRate =
  (journal: Journal): Context["rate"] =>
  async (peer, lane, find) => {
    const known = entriesOf(journal.entries, "rate").find((entry) => entry.peer === peer.name && entry.lane === lane)
    if (known !== undefined) return known.perSecond
    const perSecond = await find()
    journal.add({ entry: "rate", peer: peer.name, lane, perSecond })
    return perSecond
  }

/** What has failed is tried again when a run is gone on with. */
const isDone = ({ entries }: Journal, { attempt, measure, round }: Place, peer: string): boolean =>
  [...entriesOf(entries, "result"), ...entriesOf(entries, "none").filter(({ kind }) => kind === "unsupported")].some(
    (entry) => entry.peer === peer && entry.measure === measure && entry.round === round && entry.attempt === attempt
  )

/** In each round another peer is the first. */
const inTurn = <A>(list: ReadonlyArray<A>, round: number): ReadonlyArray<A> => {
  const first = list.length === 0 ? 0 : round % list.length
  return [...list.slice(first), ...list.slice(0, first)]
}

const measureOne = async (context: Context, journal: Journal, measure: Measure, place: Place, peer: Peer) => {
  const what = `${measure.name}, round ${place.round + 1}, ${peer.name}`
  try {
    const values = await measure.run(context, peer)
    journal.add({ entry: "result", ...place, peer: peer.name, values })
    const shown = Object.entries(values.numbers).slice(0, 4)
    say(`${what}: ${shown.map(([name, value]) => `${name} ${short(value)}`).join(", ")}`)
  } catch (error) {
    // an interrupted run has lost its servers: that is nobody's failure
    context.signal.throwIfAborted()
    const kind = error instanceof PeerCannot ? "unsupported" : "failed"
    const why = error instanceof Error ? error.message : String(error)
    journal.add({ entry: "none", ...place, peer: peer.name, kind, why: why.slice(0, 500) })
    say(`${what}: ${kind}: ${why}`)
  }
}

const oneRound = async (
  context: Context,
  journal: Journal,
  measure: Measure,
  place: Place,
  peers: ReadonlyArray<Peer>
): Promise<void> => {
  const asked = peers.filter((peer) => peer.measures === undefined || peer.measures.includes(measure.name))
  const left = inTurn(asked, place.round).filter((peer) => !isDone(journal, place, peer.name))
  if (left.length === 0) return
  // a round that is gone on with keeps the calibration it was begun with
  const known = entriesOf(journal.entries, "calibration").some(
    (entry) => entry.measure === place.measure && entry.round === place.round && entry.attempt === place.attempt
  )
  if (!known) {
    const now: Calibration = calibrate(context.options.out, context.options.quick)
    journal.add({ entry: "calibration", ...place, ...now })
  }
  for (const peer of left) {
    context.signal.throwIfAborted()
    await measureOne(context, journal, measure, place, peer)
  }
}

const mostAttempts = 3

const wanted = (options: Options): ReadonlyArray<Measure> =>
  measures.filter(({ name }) => options.measures.includes(name))

export const runRounds = async (
  context: Context,
  journal: Journal,
  peers: ReadonlyArray<Peer>,
  options: Options
): Promise<void> => {
  for (let round = 0; round < options.rounds; round += 1) {
    for (const measure of wanted(options)) {
      if (measure.once && round > 0) continue
      await oneRound(context, journal, measure, { measure: measure.name, round, attempt: 0 }, peers)
    }
  }
  // What is noisy is known only when everything has been seen. A quick run is not worth it.
  if (options.quick) return
  for (let attempt = 1; attempt < mostAttempts; attempt += 1) {
    for (const state of roundStates(journal.entries).filter(({ noisy }) => noisy)) {
      const measure = wanted(options).find(({ name }) => name === state.measure)
      if (measure === undefined || state.attempt >= attempt) continue
      say(`${state.measure}, round ${state.round + 1}, was noisy and is repeated`)
      await oneRound(context, journal, measure, { measure: state.measure, round: state.round, attempt }, peers)
    }
  }
}
