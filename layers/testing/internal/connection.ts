/**
 * One client connection and its server connection, with at most one fault in progress.
 *
 * @since 0.1.0
 */
import type { Socket } from "node:net"
import type { Execution } from "./conversation.js"
import { answered, answers, Conversation } from "./conversation.js"
import type { FaultAction, ProxiedConnection } from "./fault.js"
import type { Frame } from "./frames.js"
import { FrameSplitter } from "./frames.js"
import { asksForEncryption, captureBackend, captureFrontend, Frontend } from "./messages.js"
import { Pipe } from "./pipe.js"
import type { RuleState } from "./rule.js"

/** How much of a statement's text is read. It waits in memory until it is complete, so it has to have an end. */
const maxStatement = 128 * 1024

/**
 * What all connections of a proxy share.
 *
 * @since 0.1.0
 * @category models
 */
export interface Shared {
  readonly rules: Iterable<RuleState>
  readonly stats: {
    accepted: number
    refused: number
    unreachable: number
    unreadable: number
    cut: number
    statements: number
  }
  readonly closed: (connection: Connection) => void
}

/** Which of the two sent a message. */
type Side = "client" | "server"

type Direction = Extract<FaultAction, { readonly _tag: "BlackHole" }>["direction"]

interface Fault {
  readonly rule: RuleState
  readonly execution: Execution
  /** Waiting for the answer, keeping the answer from the client, or done with the server and lasting. */
  phase: "sent" | "withholding" | "lasting"
}

/**
 * Relays between two sockets.
 *
 * @since 0.1.0
 * @category constructors
 */
export class Connection {
  readonly #id: number
  readonly #client: Socket
  readonly #server: Socket
  readonly #shared: Shared
  readonly #fromClient = new FrameSplitter({ startup: true, capture: captureFrontend(maxStatement) })
  readonly #fromServer = new FrameSplitter({ startup: false, capture: captureBackend })
  readonly #toServer: Pipe
  readonly #toClient: Pipe
  readonly #conversation = new Conversation()
  #fault: Fault | undefined
  /** The rest of the client's current message goes nowhere. */
  #skipping = false
  #connected = false
  #forgetRule: () => void = () => undefined
  #lost: ((from: Side, type: number) => void) | undefined

  constructor(id: number, client: Socket, server: Socket, shared: Shared) {
    this.#id = id
    this.#client = client
    this.#server = server
    this.#shared = shared
    this.#toServer = new Pipe(client, server)
    this.#toClient = new Pipe(server, client)
    // An error is followed by "close", where it is dealt with; without a listener it would end the process.
    client.on("error", () => undefined)
    server.on("error", () => undefined)
    client.on("data", (chunk) => this.#clientData(chunk))
    server.on("data", (chunk) => this.#serverData(chunk))
    client.on("end", () => this.#toServer.end())
    server.on("end", () => this.#serverEnd())
    client.on("close", () => this.#clientClosed())
    server.on("close", () => this.#serverClosed())
    server.on("connect", () => (this.#connected = true))
  }

  /** Ends both connections now; with `reset` the client is told so by a RST. */
  cut(reset: boolean): void {
    if (!this.#client.destroyed) {
      this.#shared.stats.cut++
      if (reset) this.#client.resetAndDestroy()
      else this.#client.destroy()
    }
    this.#server.destroy()
  }

  /** Ends both connections without counting it as a fault. */
  destroy(): void {
    this.#client.destroy()
    this.#server.destroy()
  }

  /**
   * From now on nothing arrives in the chosen direction, not even the end of the connection. Of every message that is lost
   * `lost` is told, with the side that sent it. Returns how to end both connections.
   */
  silence(direction: Direction, lost: (from: Side, type: number) => void): () => void {
    if (direction !== "to-client") this.#toServer.drop("severed")
    if (direction !== "to-server") this.#toClient.drop("severed")
    this.#lost = lost
    return () => this.destroy()
  }

  get info(): ProxiedConnection {
    const { backendPid, listening, parameters } = this.#conversation
    const user = parameters.get("user") ?? ""
    return {
      id: this.#id,
      user,
      database: parameters.get("database") ?? user,
      applicationName: parameters.get("application_name") ?? "",
      backendPid,
      listening
    }
  }

  #clientData(chunk: Buffer): void {
    // The server hung up and the client has not noticed: answer as a closed port would.
    if (!this.#server.writable && !this.#toServer.severed) return this.destroy()
    for (const piece of this.#fromClient.push(chunk)) {
      if (piece._tag === "Frame") this.#clientFrame(piece)
      else if (piece._tag === "Malformed") return this.#unreadable()
      else if (!this.#skipping) this.#toServer.write(piece.raw)
      if (this.#client.destroyed) return
    }
    this.#toServer.flush()
  }

  #clientFrame(frame: Frame): void {
    if (this.#toServer.severed) this.#lost?.("client", frame.type)
    this.#skipping = this.#isBehindCut(frame)
    if (frame.type === Frontend.startup && asksForEncryption(frame.body)) {
      // Encrypted statements could not be read. Clients that only prefer encryption go on without.
      this.#skipping = true
      this.#client.write("N")
    }
    if (this.#skipping) return
    const execution = this.#conversation.frontend(frame)
    if (execution === undefined) {
      this.#toServer.write(frame.raw)
      return this.#settle()
    }
    this.#shared.stats.statements++
    const rule = this.#choose(execution)
    if (rule === undefined) this.#toServer.write(frame.raw)
    else this.#inject(rule, execution, frame)
  }

  /** What a client pipelines behind a statement whose answer will be lost must not be executed half and half. */
  #isBehindCut(frame: Frame): boolean {
    if (this.#fault?.rule.action._tag !== "CutAfter" || this.#fault.execution.exchange.open) return false
    return ![Frontend.copyData, Frontend.copyDone, Frontend.copyFail].includes(frame.type)
  }

  #choose(execution: Execution): RuleState | undefined {
    if (this.#fault !== undefined) return undefined
    const info = this.info
    for (const rule of this.#shared.rules) if (rule.chooses(execution, info)) return rule
    return undefined
  }

  #inject(rule: RuleState, execution: Execution, frame: Frame): void {
    const { action } = rule
    if (action._tag === "CutBefore") {
      this.cut(action.reset)
      return rule.record(execution, this.info, true)
    }
    const awaitsAnswer = rule.needsAnswer
    this.#fault = { rule, execution, phase: awaitsAnswer ? "sent" : "lasting" }
    if (action._tag === "Hold" && action.what === "statement") {
      this.#toServer.hold()
      rule.endWhen(action.until, () => this.#release(this.#toServer))
    }
    if (action._tag === "BlackHole") {
      if (action.direction !== "to-client") this.#toServer.drop("severed")
      if (action.direction !== "to-server") this.#toClient.drop("severed")
      this.#forgetRule = rule.endAtRemoval(() => this.destroy())
    }
    this.#toServer.write(frame.raw)
    if (!awaitsAnswer) rule.record(execution, this.info, true)
  }

  #serverData(chunk: Buffer): void {
    for (const piece of this.#fromServer.push(chunk)) {
      if (piece._tag === "Frame") this.#serverFrame(piece)
      else if (piece._tag === "Malformed") return this.#unreadable()
      else this.#toClient.write(piece.raw)
      if (this.#server.destroyed) return
    }
    this.#toClient.flush()
  }

  #serverFrame(frame: Frame): void {
    if (this.#toClient.severed) this.#lost?.("server", frame.type)
    const fault = this.#fault
    if (
      fault?.phase === "sent" &&
      this.#conversation.current === fault.execution.exchange &&
      answers(frame, fault.execution)
    ) {
      fault.phase = "withholding"
      if (fault.rule.action._tag === "CutAfter") this.#toClient.drop("dropping")
      if (fault.rule.action._tag === "Hold") this.#toClient.hold(() => this.#finish())
    }
    this.#toClient.write(frame.raw)
    this.#conversation.backend(frame)
    this.#settle()
  }

  #settle(): void {
    if (this.#fault?.phase === "withholding" && answered(this.#fault.execution)) this.#finish()
  }

  /** The server has answered (or said more than can be held); now the fault shows. */
  #finish(): void {
    const fault = this.#fault
    if (fault?.phase !== "withholding") return
    fault.phase = "lasting"
    const { execution, rule } = fault
    const { action } = rule
    // A client that was gone before its answer came lost it by its own doing.
    const waiting = !this.#client.destroyed && !this.#client.readableEnded
    if (action._tag === "CutAfter") this.cut(action.reset)
    rule.record(execution, this.info, waiting)
    if (action._tag === "Hold") rule.endWhen(action.until, () => this.#release(this.#toClient))
  }

  #release(pipe: Pipe): void {
    this.#fault = undefined
    pipe.release()
  }

  #unreadable(): void {
    this.#shared.stats.unreadable++
    this.destroy()
  }

  #serverEnd(): void {
    this.#toClient.end()
    // PostgreSQL does not half-close: it is gone, and what the client still says has no reader.
    this.#server.end()
  }

  #clientClosed(): void {
    if (!this.#toClient.severed) this.#toClient.drop("dropping")
    if (!this.#toServer.severed) {
      if (this.#connected) this.#toServer.end()
      else this.#server.destroy()
    }
    this.#closed()
  }

  #serverClosed(): void {
    const fault = this.#fault
    if (fault !== undefined && fault.phase !== "lasting") {
      fault.phase = "lasting"
      fault.rule.record(fault.execution, this.info, false)
    }
    if (!this.#connected) {
      this.#shared.stats.unreachable++
      this.#client.destroy()
    }
    if (!this.#toServer.severed) this.#toServer.drop("dropping")
    this.#toClient.end()
    this.#closed()
  }

  #closed(): void {
    if (!this.#client.destroyed || !this.#server.destroyed) return
    this.#forgetRule()
    this.#shared.closed(this)
  }
}
