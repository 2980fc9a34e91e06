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

/** The private field is the proof: an object that has none was not made here, whatever it looks like. */
class Proof implements SettledProof {
  readonly [SettledTypeId]: typeof SettledTypeId = SettledTypeId
  readonly how: SettledHow
  readonly outcome: string
  #spent = false

  constructor(how: SettledHow, outcome: string) {
    this.how = how
    this.outcome = outcome
    Object.freeze(this)
  }

  static spend(value: object): boolean {
    if (!(#spent in value) || value.#spent) return false
    value.#spent = true
    return true
  }
}

/** @internal Only `Completion` and `Reconciliation` make these, and only from an answer of the database or for an attempt that is watched. */
export const makeSettled = (how: SettledHow, outcome: string): SettledProof => new Proof(how, outcome)

/** @internal A proof is good for one permit: the second use answers false. */
export const spend = (settled: SettledProof): boolean => Proof.spend(settled)
