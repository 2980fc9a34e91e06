/**
 * A small set of combinations in which every two values of two dimensions occur together: most faults of configuration need two
 * settings to meet, few need three.
 */
export type Combination = Readonly<Record<string, string | number>>

/** The pairs of values that meet in a combination. */
export const pairsOf = (combination: Combination): ReadonlyArray<string> => {
  const values = Object.entries(combination).map(([dimension, value]) => `${dimension}=${value}`)
  return values.flatMap((one, at) => values.slice(at + 1).map((other) => `${one} & ${other}`))
}

/** Takes, again and again, the combination with the most pairs that none has had yet; the first of those. */
const greedy = <A extends Combination>(combinations: ReadonlyArray<A>): ReadonlyArray<A> => {
  const missing = new Set(combinations.flatMap(pairsOf))
  const chosen: Array<A> = []
  while (missing.size > 0) {
    let best: A | undefined
    let most = 0
    for (const combination of combinations) {
      const gain = pairsOf(combination).filter((pair) => missing.has(pair)).length
      if (gain > most) [best, most] = [combination, gain]
    }
    if (best === undefined) break
    for (const pair of pairsOf(best)) missing.delete(pair)
    chosen.push(best)
  }
  return chosen
}

/** How far apart in an order two neighbours of the list stand, modulo its length. */
const strides = [1, 233, 239]

/**
 * The smallest of a few such sets. Which of several equally good combinations comes first decides how many it takes, so they are
 * tried in other orders, always the same ones: the answer is the same for the same combinations.
 */
export const pairwise = <A extends Combination>(combinations: ReadonlyArray<A>): ReadonlyArray<A> => {
  const { length } = combinations
  const orders = strides.map((stride) =>
    combinations
      .map((combination, at) => ({ combination, place: (at * stride) % length }))
      .sort((one, other) => one.place - other.place)
      .map(({ combination }) => combination)
  )
  const sets = orders.map(greedy)
  return sets.reduce((best, set) => (set.length < best.length ? set : best), greedy(combinations))
}
