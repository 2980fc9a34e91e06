/** A measure: what is asked of a peer, and what comes of it. */
import type { Values } from "./journal.js"
import type { Peer } from "./peers.js"
import type { Context } from "./session.js"

export interface Measure {
  readonly name: string
  readonly title: string
  /** What takes long and compares a peer with itself is done in the first round only. */
  readonly once: boolean
  readonly run: (context: Context, peer: Peer) => Promise<Values>
}
