/** @internal */
export const SettledTypeId: unique symbol = Symbol.for("effect-awa/Settled")

/** @internal */
export type SettledHow = "closed" | "accepted" | "stale" | "parked" | "unresolved"

/** @internal */
export interface SettledProof {
  readonly [SettledTypeId]: typeof SettledTypeId
  readonly how: SettledHow
  readonly outcome: string
}

const made = new WeakSet<object>()

/** @internal Only `Completion` and `Reconciliation` make these, and only from an answer of the database or for an attempt that is watched. */
export const makeSettled = (how: SettledHow, outcome: string): SettledProof => {
  const settled: SettledProof = { [SettledTypeId]: SettledTypeId, how, outcome }
  made.add(Object.freeze(settled))
  return settled
}

/** @internal A proof is good for one permit: the second use answers false. */
export const spend = (settled: SettledProof): boolean => made.delete(settled)
