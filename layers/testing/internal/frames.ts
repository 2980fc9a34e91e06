/**
 * Cuts a PostgreSQL byte stream into messages without ever holding a message's whole body.
 *
 * A proxy must pass a 100 MB COPY with the memory of one chunk, yet read a statement before it decides to forward it.
 * So a message becomes one `Frame` (its header and the first `capture(type)` bytes of its body, or more when they
 * are there already), followed by `Rest` pieces as the remaining bytes arrive. The raw bytes of all pieces, in order,
 * are the stream.
 *
 * @since 0.1.0
 */
import { Opening } from "./messages.js"

/**
 * The first piece of a message. `type` is the type byte, or 0 for the untyped messages that open a connection.
 *
 * @since 0.1.0
 * @category models
 */
export interface Frame {
  readonly _tag: "Frame"
  readonly type: number
  /** The length of the body: everything after the length word. */
  readonly length: number
  /** The captured start of the body: `min(length, capture(type))` bytes. */
  readonly body: Buffer
  readonly raw: Buffer
}

/**
 * `Rest` continues the frame before it. `Malformed` says that the stream is not (or no longer) readable as protocol 3.
 *
 * @since 0.1.0
 * @category models
 */
export type Piece = Frame | { readonly _tag: "Rest"; readonly raw: Buffer } | { readonly _tag: "Malformed" }

const malformed: Piece = { _tag: "Malformed" }

/** PostgreSQL refuses longer startup packets; a TLS ClientHello read as one is far longer. */
const maxStartupLength = 10_000
/** PostgreSQL's own bound on a message. */
const maxLength = 0x3fff_ffff

/** What the code word of an untyped message says about the bytes that follow it. */
const afterStartup = (code: number): "startup" | "typed" | "opaque" | "malformed" => {
  if (code === Opening.sslRequest || code === Opening.gssEncRequest) return "startup"
  if (code === Opening.cancelRequest) return "opaque"
  return code >>> 16 === 3 ? "typed" : "malformed"
}

/**
 * Splits one direction of one connection. The pieces do not depend on how the stream is chunked, except that the bytes
 * beyond the captured ones may come in one or in several of them.
 *
 * @since 0.1.0
 * @category constructors
 */
export class FrameSplitter {
  readonly #capture: (type: number) => number
  #state: "startup" | "typed" | "opaque" | "malformed"
  /** The start of a message of which not enough has arrived to say what it is. */
  #pending: Buffer = Buffer.alloc(0)
  /** How many bytes of the current message are still to pass. */
  #rest = 0

  constructor(options: { readonly startup: boolean; readonly capture: (type: number) => number }) {
    this.#capture = options.capture
    this.#state = options.startup ? "startup" : "typed"
  }

  push(chunk: Buffer): ReadonlyArray<Piece> {
    const pieces: Array<Piece> = []
    const bytes = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk])
    let offset = 0
    while (offset < bytes.length) {
      const piece = this.#next(bytes, offset)
      if (piece === undefined) break
      pieces.push(piece)
      if (piece._tag === "Malformed") return pieces
      offset += piece.raw.length
    }
    // A copy: a few waiting bytes must not keep a whole chunk alive.
    this.#pending = offset < bytes.length ? Buffer.from(bytes.subarray(offset)) : Buffer.alloc(0)
    return pieces
  }

  #next(bytes: Buffer, offset: number): Piece | undefined {
    if (this.#state === "malformed") return malformed
    if (this.#state === "opaque") return { _tag: "Rest", raw: bytes.subarray(offset) }
    if (this.#rest > 0) {
      const raw = bytes.subarray(offset, offset + this.#rest)
      this.#rest -= raw.length
      return { _tag: "Rest", raw }
    }
    return this.#head(bytes, offset)
  }

  #head(bytes: Buffer, offset: number): Piece | undefined {
    const startup = this.#state === "startup"
    const header = startup ? 4 : 5
    if (bytes.length - offset < header) return undefined
    const type = startup ? 0 : bytes.readUInt8(offset)
    const length = bytes.readUInt32BE(offset + header - 4) - 4
    if (length < (startup ? 4 : 0) || length > (startup ? maxStartupLength : maxLength)) return this.#fail()
    const captured = startup ? length : Math.min(length, this.#capture(type))
    if (bytes.length - offset < header + captured) return undefined
    if (startup) {
      this.#state = afterStartup(bytes.readUInt32BE(offset + header))
      if (this.#state === "malformed") return this.#fail()
    }
    const raw = bytes.subarray(offset, offset + header + length)
    this.#rest = header + length - raw.length
    return { _tag: "Frame", type, length, body: raw.subarray(header, header + captured), raw }
  }

  #fail(): Piece {
    this.#state = "malformed"
    return malformed
  }
}

/**
 * The two buffers as one if they lie side by side in memory, as the pieces of one chunk do. It turns the thousand
 * small writes of a result set into one.
 *
 * @since 0.1.0
 * @category combinators
 */
export const joined = (left: Buffer, right: Buffer): Buffer | undefined =>
  left.buffer === right.buffer && left.byteOffset + left.length === right.byteOffset
    ? Buffer.from(left.buffer, left.byteOffset, left.length + right.length)
    : undefined
