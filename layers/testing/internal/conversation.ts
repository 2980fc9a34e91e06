/**
 * Knows, for one connection, which statement a client executes and which of the server's messages answer it.
 *
 * The protocol pairs them only by order: everything up to a Query or a Sync is answered by everything up to one
 * ReadyForQuery, and inside that the n-th executed statement is over with the n-th CommandComplete (or one of its
 * siblings). Clients pipeline, so both sides of the pairing are counted rather than assumed.
 *
 * @since 0.1.0
 */
import type { Frame } from "./frames.js"
import type { TransactionStatus } from "./messages.js"
import { Backend, backendPid, Frontend, sqlState, startupParameters, strings, transactionStatus } from "./messages.js"
import type { Text } from "./prepared.js"
import { Prepared, queryText } from "./prepared.js"

/**
 * What a client sent up to one Query or Sync, and what the server has answered to it so far.
 *
 * @since 0.1.0
 * @category models
 */
export interface Exchange {
  /** No Query or Sync yet: the server does not owe a ReadyForQuery. */
  open: boolean
  /** The client asked for answers before its Sync and may be waiting for them now. */
  flushed: boolean
  /** Ended by a Query: its last statement is answered by any number of commands. */
  simple: boolean
  executed: number
  completed: number
  readonly tags: Array<string>
  readonly sqlStates: Array<string>
  /** ReadyForQuery has arrived; it carries the transaction status. */
  ready: boolean
  transactionStatus: TransactionStatus | undefined
}

/**
 * A statement at the moment a client executes it. `position` is the number of statements before it in its exchange.
 *
 * @since 0.1.0
 * @category models
 */
export interface Execution extends Text {
  readonly protocol: "simple" | "extended"
  readonly exchange: Exchange
  readonly position: number
}

/** Enough for any statement a person wrote; the restore of a dump in one Query must not grow the proxy. */
const maxNotes = 1_000

const note = (list: Array<string>, value: string): void => {
  if (list.length < maxNotes) list.push(value)
}

/**
 * Whether this frame, the next one of the server, belongs to the answer of the execution or comes after it. The answers
 * of what the client sent before the execution (a ParseComplete it may be waiting for) do not.
 *
 * @since 0.1.0
 * @category predicates
 */
export const answers = (frame: Frame, { exchange, position, protocol }: Execution): boolean => {
  switch (frame.type) {
    // After an error the server skips the rest of the exchange: the error is the execution's answer too.
    case Backend.errorResponse:
    case Backend.readyForQuery:
      return true
    case Backend.rowDescription:
      return protocol === "simple" && exchange.completed >= position
    case Backend.commandComplete:
    case Backend.dataRow:
    case Backend.emptyQueryResponse:
    case Backend.portalSuspended:
      return exchange.completed >= position
    default:
      return false
  }
}

/**
 * Whether the server has said all it will say to the execution: ReadyForQuery, or, when the client waits at a Flush, the
 * end of the statement itself.
 *
 * @since 0.1.0
 * @category predicates
 */
export const answered = ({ exchange, position }: Execution): boolean =>
  exchange.ready ||
  (exchange.open && exchange.flushed && (exchange.completed > position || exchange.sqlStates.length > 0))

/**
 * The state of one conversation, fed with the frames of both directions.
 *
 * @since 0.1.0
 * @category constructors
 */
export class Conversation {
  backendPid: number | undefined
  listening = false
  parameters: ReadonlyMap<string, string> = new Map()
  readonly #exchanges: Array<Exchange> = []
  readonly #prepared = new Prepared()
  /** The server reads a COPY: it ignores the Syncs that clients send blindly behind their Execute. */
  #copyIn = false

  /** The exchange the server is answering. */
  get current(): Exchange | undefined {
    return this.#exchanges[0]
  }

  /** Takes a client's frame. A statement, if this frame executes one whose text is known. */
  frontend(frame: Frame): Execution | undefined {
    switch (frame.type) {
      case Frontend.startup:
        this.#startup(frame)
        return undefined
      case Frontend.query:
        return this.#query(frame)
      case Frontend.execute:
        return this.#execute(frame)
      case Frontend.sync:
        if (!this.#copyIn) this.#opened().open = false
        return undefined
      case Frontend.functionCall:
        this.#opened().open = false
        return undefined
      case Frontend.copyDone:
      case Frontend.copyFail:
        this.#copyIn = false
        return undefined
      case Frontend.parse:
        this.#prepared.parse(frame)
        break
      case Frontend.bind:
        this.#prepared.bind(frame)
        break
      case Frontend.close:
        this.#prepared.close(frame)
        break
      case Frontend.flush:
        this.#opened().flushed = true
        return undefined
      case Frontend.describe:
        break
      default:
        return undefined
    }
    this.#opened()
    return undefined
  }

  /** Takes a server's frame. */
  backend(frame: Frame): void {
    const current = this.current
    if (frame.type === Backend.backendKeyData) this.backendPid = backendPid(frame.body)
    if (frame.type === Backend.copyInResponse) this.#copyIn = true
    if (frame.type === Backend.errorResponse || frame.type === Backend.readyForQuery) this.#copyIn = false
    // A server also speaks unasked: notices, notifications, the error before it shuts down.
    if (current === undefined) return
    switch (frame.type) {
      case Backend.commandComplete: {
        const tag = strings(frame.body, 1)[0] ?? ""
        current.completed++
        if (tag === "LISTEN") this.listening = true
        note(current.tags, tag)
        return
      }
      case Backend.emptyQueryResponse:
      case Backend.portalSuspended:
        current.completed++
        return
      case Backend.errorResponse:
        note(current.sqlStates, sqlState(frame.body))
        return
      case Backend.copyInResponse:
        // The Sync that came right behind this Execute is one of those the server ignores.
        if (!current.simple && this.#exchanges.length === 1) current.open = true
        return
      case Backend.readyForQuery:
        current.transactionStatus = transactionStatus(frame.body)
        current.ready = true
        current.open = false
        this.#exchanges.shift()
        return
    }
  }

  #startup(frame: Frame): void {
    const parameters = startupParameters(frame.body)
    if (parameters === undefined) return
    this.parameters = parameters
    // Authentication, too, ends with a ReadyForQuery.
    this.#opened().open = false
  }

  #query(frame: Frame): Execution {
    const exchange = this.#opened()
    exchange.open = false
    exchange.simple = true
    return { ...queryText(frame), protocol: "simple", exchange, position: exchange.executed++ }
  }

  #execute(frame: Frame): Execution | undefined {
    const exchange = this.#opened()
    const position = exchange.executed++
    const text = this.#prepared.execute(frame)
    return text === undefined ? undefined : { ...text, protocol: "extended", exchange, position }
  }

  #opened(): Exchange {
    const last = this.#exchanges.at(-1)
    if (last?.open === true) return last
    const exchange: Exchange = {
      open: true,
      flushed: false,
      simple: false,
      executed: 0,
      completed: 0,
      tags: [],
      sqlStates: [],
      ready: false,
      transactionStatus: undefined
    }
    this.#exchanges.push(exchange)
    return exchange
  }
}
