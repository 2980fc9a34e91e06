/**
 * What a fault is: the statement it waits for, what it then does, and the evidence that it did.
 *
 * @since 0.1.0
 */
import type { DateTime, Duration } from "effect"
import { Data, Effect } from "effect"
import type { TransactionStatus } from "./messages.js"

/**
 * A client's connection through the proxy, as its startup message and the server describe it. Give each worker its own
 * `application_name` and a rule can choose among them.
 *
 * @since 0.1.0
 * @category models
 */
export interface ProxiedConnection {
  readonly id: number
  readonly user: string
  readonly database: string
  readonly applicationName: string
  readonly backendPid: number | undefined
  /** Whether the server has answered a `LISTEN` of this connection. */
  readonly listening: boolean
}

/**
 * A statement a client is about to execute: the text of a simple query, or the text that was prepared for an extended
 * one. `truncated` says that only the start of a very long text is here.
 *
 * @since 0.1.0
 * @category models
 */
export interface ProxiedStatement {
  readonly sql: string
  readonly truncated: boolean
  readonly protocol: "simple" | "extended"
  readonly connection: ProxiedConnection
}

/**
 * The server's own answer to a statement, to the end of its exchange: command tags such as `INSERT 0 1` and `COMMIT`,
 * SQLSTATEs of errors, and the transaction status of the closing ReadyForQuery (`I` idle, `T` in a transaction, `E` in
 * a failed one; `undefined` if the server did not get to it).
 *
 * @since 0.1.0
 * @category models
 */
export interface ServerAnswer {
  readonly tags: ReadonlyArray<string>
  readonly sqlStates: ReadonlyArray<string>
  readonly transactionStatus: TransactionStatus | undefined
}

/**
 * What is done to a matched statement.
 *
 * @since 0.1.0
 * @category models
 */
export type FaultAction = Data.TaggedEnum<{
  CutBefore: { readonly reset: boolean }
  CutAfter: { readonly reset: boolean }
  Hold: { readonly what: "statement" | "answer"; readonly until: Effect.Effect<unknown> }
  BlackHole: { readonly direction: "to-server" | "to-client" | "both" }
}>

/**
 * @since 0.1.0
 * @category models
 */
export const FaultAction = Data.taggedEnum<FaultAction>()

/** With `reset` the client sees a connection reset (RST) instead of an orderly end (FIN); drivers treat them apart. */
interface CutOptions {
  readonly reset?: boolean
}

/**
 * The statement never reaches the server and the connection is cut: it did not happen.
 *
 * @since 0.1.0
 * @category actions
 * @example
 * ```ts
 * import { cutBefore } from "effect-awa/layers/testing/FaultProxy"
 *
 * const rule = { match: /^insert into ledger/, action: cutBefore() }
 * ```
 */
export const cutBefore = (options?: CutOptions): FaultAction =>
  FaultAction.CutBefore({ reset: options?.reset ?? false })

/**
 * The server executes the statement, its whole answer arrives at the proxy and is thrown away, and the connection is
 * cut: it happened and the client cannot know.
 *
 * @since 0.1.0
 * @category actions
 * @example
 * ```ts
 * import { cutAfter } from "effect-awa/layers/testing/FaultProxy"
 *
 * const rule = { match: /^commit$/i, action: cutAfter({ reset: true }) }
 * ```
 */
export const cutAfter = (options?: CutOptions): FaultAction => FaultAction.CutAfter({ reset: options?.reset ?? false })

/**
 * The server answers at once and the client gets the answer later: after a duration, or when an effect completes.
 *
 * @since 0.1.0
 * @category actions
 * @example
 * ```ts
 * import { holdAnswer } from "effect-awa/layers/testing/FaultProxy"
 *
 * const rule = { match: /complete_job/, action: holdAnswer("300 millis") }
 * ```
 */
export const holdAnswer = (until: Duration.DurationInput | Effect.Effect<unknown>): FaultAction =>
  FaultAction.Hold({ what: "answer", until: Effect.isEffect(until) ? until : Effect.sleep(until) })

/**
 * The statement, and everything the client sends behind it, reaches the server later.
 *
 * @since 0.1.0
 * @category actions
 * @example
 * ```ts
 * import { Deferred, Effect } from "effect"
 * import { holdStatement } from "effect-awa/layers/testing/FaultProxy"
 *
 * const rule = Effect.map(Deferred.make<void>(), (go) => ({ match: /^commit/i, action: holdStatement(Deferred.await(go)) }))
 * ```
 */
export const holdStatement = (until: Duration.DurationInput | Effect.Effect<unknown>): FaultAction =>
  FaultAction.Hold({ what: "statement", until: Effect.isEffect(until) ? until : Effect.sleep(until) })

/**
 * From the statement on, nothing arrives in the chosen direction any more, not even the end of the connection: the
 * silence of a lost route. What is sent into it is dropped. The connection stays until the rule is removed.
 *
 * @since 0.1.0
 * @category actions
 * @example
 * ```ts
 * import { blackHole } from "effect-awa/layers/testing/FaultProxy"
 *
 * const rule = { match: /heartbeat/, action: blackHole("both") }
 * ```
 */
export const blackHole = (direction: "to-server" | "to-client" | "both" = "both"): FaultAction =>
  FaultAction.BlackHole({ direction })

/**
 * Which statements a fault befalls. Of the statements that match, `skip` passes the first ones, `every` takes each n-th,
 * `probability` takes some by a seeded generator, and `limit` stops after that many faults. Where several rules want
 * one statement the first installed has it, and a connection suffers one fault at a time.
 *
 * `expect` judges the server's answer: only an answer it accepts counts as an effect. By default that is any
 * answer with a command tag and without an error.
 *
 * @since 0.1.0
 * @category models
 */
export interface FaultRule {
  readonly name?: string
  readonly match: RegExp | ((statement: ProxiedStatement) => boolean)
  readonly action: FaultAction
  readonly skip?: number
  readonly every?: number
  readonly probability?: { readonly rate: number; readonly seed: number }
  readonly limit?: number
  readonly expect?: (answer: ServerAnswer) => boolean
}

/**
 * One fault that was injected, with the server's answer as far as it concerns the fault: nothing reaches the server
 * from a statement that was cut before it or held, so these have no tags.
 *
 * @since 0.1.0
 * @category models
 */
export interface FaultEffect extends ServerAnswer {
  readonly at: DateTime.Utc
  readonly rule: string
  readonly action: FaultAction["_tag"]
  /** The first 200 characters of the statement. */
  readonly statement: string
  readonly applicationName: string
  readonly backendPid: number | undefined
}

/**
 * How often a rule's text matched, how often it was chosen and a fault begun, and how often that took effect; and how
 * often the rule's own functions threw, which counts as no match and no effect.
 *
 * @since 0.1.0
 * @category models
 */
export interface FaultCounts {
  readonly matched: number
  readonly injected: number
  readonly tookEffect: number
  readonly defects: number
}

/**
 * Accepts the answer of a transaction that really committed. A COMMIT can also be answered by the tag `ROLLBACK`.
 *
 * @since 0.1.0
 * @category predicates
 * @example
 * ```ts
 * import { committed, cutAfter } from "effect-awa/layers/testing/FaultProxy"
 *
 * const rule = { match: /commit/i, action: cutAfter(), expect: committed, limit: 3 }
 * ```
 */
export const committed = (answer: ServerAnswer): boolean =>
  answer.sqlStates.length === 0 && answer.tags.at(-1) === "COMMIT" && answer.transactionStatus === "I"
