/**
 * One direction of a proxied connection: moves bytes from one socket to the other no faster than they are taken, and can
 * be held, made to drop everything, or severed.
 *
 * @since 0.1.0
 */
import type { Socket } from "node:net"
import { joined } from "./frames.js"

/** A held direction keeps this much; then the source has to wait. */
const maxHeld = 4 * 1024 * 1024

/**
 * - `open`: bytes and the end of the stream pass
 * - `held`: they wait
 * - `dropping`: bytes are thrown away, the end passes
 * - `severed`: nothing passes, not even the end
 */
type Mode = "open" | "held" | "dropping" | "severed"

/**
 * A pipe between two sockets. The owner calls `write` for each piece, then `flush` once per chunk.
 *
 * @since 0.1.0
 * @category constructors
 */
export class Pipe {
  readonly #source: Socket
  readonly #sink: Socket
  #mode: Mode = "open"
  /** Neighbouring pieces of the chunk in hand, to be written as one. */
  #span: Buffer | undefined
  #held: Array<Buffer> = []
  #heldBytes = 0
  #onFull: (() => void) | undefined
  #ended = false

  constructor(source: Socket, sink: Socket) {
    this.#source = source
    this.#sink = sink
    sink.on("drain", () => this.#resume())
  }

  get severed(): boolean {
    return this.#mode === "severed"
  }

  write(bytes: Buffer): void {
    if (this.#mode === "dropping" || this.#mode === "severed") return
    const span = this.#span === undefined ? bytes : joined(this.#span, bytes)
    if (span === undefined) this.flush()
    this.#span = span ?? bytes
  }

  flush(): void {
    const span = this.#span
    this.#span = undefined
    if (span === undefined) return
    if (this.#mode === "held") this.#keep(span)
    else if (this.#mode === "open") this.#send(span)
  }

  /** The source has nothing more to say. */
  end(): void {
    this.flush()
    this.#ended = true
    if (this.#mode === "open" || this.#mode === "dropping") this.#sink.end()
  }

  /** Lets what came before pass, and keeps what follows. `onFull` is called if that is more than can be kept. */
  hold(onFull?: () => void): void {
    if (this.#mode !== "open") return
    this.flush()
    this.#mode = "held"
    this.#onFull = onFull
  }

  /** Lets what was held pass. */
  release(): void {
    if (this.#mode !== "held") return
    this.flush()
    this.#mode = "open"
    const held = this.#forget()
    for (const bytes of held) this.#send(bytes)
    if (this.#ended) this.#sink.end()
    this.#resume()
  }

  /** Throws away what is held and all that follows. */
  drop(mode: "dropping" | "severed"): void {
    this.flush()
    this.#mode = mode
    this.#forget()
    if (this.#ended && mode === "dropping") this.#sink.end()
    // Read on: only so are the other side's answers, and its end, noticed.
    this.#source.resume()
  }

  #send(bytes: Buffer): void {
    if (this.#sink.writable && !this.#sink.write(bytes)) this.#source.pause()
  }

  #keep(bytes: Buffer): void {
    this.#held.push(bytes)
    this.#heldBytes += bytes.length
    if (this.#heldBytes <= maxHeld) return
    this.#source.pause()
    const onFull = this.#onFull
    this.#onFull = undefined
    onFull?.()
  }

  #forget(): ReadonlyArray<Buffer> {
    const held = this.#held
    this.#held = []
    this.#heldBytes = 0
    this.#onFull = undefined
    return held
  }

  #resume(): void {
    if (this.#heldBytes <= maxHeld && !this.#sink.writableNeedDrain) this.#source.resume()
  }
}
