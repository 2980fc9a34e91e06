/** @internal Whether a transaction is still its body's. */
export interface Gate {
  /** From now on nothing passes. */
  readonly close: () => void
  readonly isClosed: () => boolean
  /** Throws when it is closed. */
  readonly check: () => void
  /** Why nothing passes. */
  readonly refusal: () => Error
}

/**
 * What keeps a body from a transaction that is no longer its own: the connection may be another's by then. It is asked where a
 * statement is sent, not where it is made, since some drivers send it only when it is awaited.
 *
 * @internal
 */
export const makeGate = (): Gate => {
  let closed = false
  const refusal = (): Error => new Error("the transaction is not its body's any more")
  return {
    close: () => {
      closed = true
    },
    isClosed: () => closed,
    check: () => {
      if (closed) throw refusal()
    },
    refusal
  }
}
