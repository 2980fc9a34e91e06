/** The choices of one actor: the same for the same seed and name, whatever the other actors do. */
export interface Random {
  /** In [0, 1). */
  readonly next: () => number
  /** A whole number from `from` to `to`, both included. */
  readonly between: (from: number, to: number) => number
  readonly chance: (probability: number) => boolean
  readonly pick: <A>(items: readonly [A, ...ReadonlyArray<A>]) => A
  /** One of some names, by their weights. */
  readonly weighted: <Name extends string>(weights: Readonly<Record<Name, number>>) => Name
}

const hashOf = (text: string): number => {
  let hash = 0x811c9dc5
  for (const char of text) hash = Math.imul(hash ^ (char.codePointAt(0) ?? 0), 0x01000193)
  return hash >>> 0
}

const entries = <Name extends string>(
  weights: Readonly<Record<Name, number>>
): ReadonlyArray<readonly [Name, number]> => {
  const all: Array<readonly [Name, number]> = []
  for (const name in weights) all.push([name, weights[name]])
  return all
}

/** mulberry32 */
export const makeRandom = (seed: number, actor: string): Random => {
  let state = (seed ^ hashOf(actor)) >>> 0
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296
  }
  const between = (from: number, to: number) => from + Math.floor(next() * (to - from + 1))
  return {
    next,
    between,
    chance: (probability) => next() < probability,
    pick: (items) => items[between(0, items.length - 1)] ?? items[0],
    weighted: (weights) => {
      const all = entries(weights)
      const [first] = all
      if (first === undefined) throw new Error("nothing to choose from")
      let left = next() * all.reduce((sum, [, weight]) => sum + weight, 0)
      for (const [name, weight] of all) {
        left -= weight
        if (left < 0) return name
      }
      return first[0]
    }
  }
}
