/**
 * An installed rule: chooses statements, counts, and keeps the evidence. Synchronous, because it is asked in the middle of
 * a socket's data event.
 *
 * @since 0.1.0
 */
import type { Clock, Effect } from "effect"
import { DateTime, Utils } from "effect"
import type { Execution } from "./conversation.js"
import type { FaultAction, FaultCounts, FaultEffect, FaultRule, ProxiedConnection, ServerAnswer } from "./fault.js"

/** The counts go on; the evidence of a long storm is a sample. */
const maxRecords = 1_000
const maxStatement = 200

const plausible = (answer: ServerAnswer): boolean => answer.tags.length > 0 && answer.sqlStates.length === 0

/** Whether the statement must have an answer for the fault to count: the others are deeds of the proxy alone. */
const needsAnswer = (action: FaultAction): boolean =>
  action._tag === "CutAfter" ||
  (action._tag === "Hold" && action.what === "answer") ||
  (action._tag === "BlackHole" && action.direction === "to-client")

const nothing: ServerAnswer = { tags: [], sqlStates: [], transactionStatus: undefined }

/**
 * Runs an effect within the scope of a rule and calls back when it is over, however it ended.
 *
 * @since 0.1.0
 * @category models
 */
export type RunEffect = (effect: Effect.Effect<unknown>, done: () => void) => void

/**
 * The state of one rule.
 *
 * @since 0.1.0
 * @category constructors
 */
export class RuleState {
  readonly name: string
  readonly action: FaultAction
  readonly #rule: FaultRule
  readonly #clock: Clock.Clock
  readonly #matches: (execution: Execution, connection: ProxiedConnection) => boolean
  readonly #random: Utils.PCGRandom | undefined
  #counts = { matched: 0, injected: 0, tookEffect: 0, defects: 0 }
  readonly effects: Array<FaultEffect> = []
  readonly misses: Array<FaultEffect> = []
  readonly #waiting = new Set<{ readonly atLeast: number; readonly resume: () => void }>()
  readonly #undo = new Set<() => void>()
  readonly #run: RunEffect
  #removed = false

  constructor(rule: FaultRule, name: string, clock: Clock.Clock, run: RunEffect) {
    this.#run = run
    this.name = name
    this.action = rule.action
    this.#rule = rule
    this.#clock = clock
    this.#random = rule.probability === undefined ? undefined : new Utils.PCGRandom(rule.probability.seed)
    const { match } = rule
    if (match instanceof RegExp) {
      // A global or sticky expression remembers where it stopped and would skip statements.
      const stateless = new RegExp(match.source, match.flags.replace(/[gy]/g, ""))
      this.#matches = (execution) => stateless.test(execution.sql)
    } else {
      this.#matches = ({ protocol, sql, truncated }, connection) => match({ sql, truncated, protocol, connection })
    }
  }

  get counts(): FaultCounts {
    return { ...this.#counts }
  }

  get removed(): boolean {
    return this.#removed
  }

  get needsAnswer(): boolean {
    return needsAnswer(this.action)
  }

  /** Whether the fault is to befall this statement. */
  chooses(execution: Execution, connection: ProxiedConnection): boolean {
    if (this.#removed || !this.#safely(() => this.#matches(execution, connection))) return false
    const { every = 1, limit = Infinity, probability, skip = 0 } = this.#rule
    const nth = this.#counts.matched++ - skip
    if (nth < 0 || (nth + 1) % every !== 0 || this.#counts.injected >= limit) return false
    if (probability !== undefined && this.#random !== undefined && this.#random.number() >= probability.rate)
      return false
    this.#counts.injected++
    return true
  }

  /** Records what became of an injected fault, by the server's answer where there is one. */
  record(execution: Execution, connection: ProxiedConnection, happened: boolean): void {
    const { sqlStates, tags, transactionStatus } = needsAnswer(this.action) ? execution.exchange : nothing
    const answer: ServerAnswer = { tags: [...tags], sqlStates: [...sqlStates], transactionStatus }
    const { expect = plausible } = this.#rule
    const tookEffect = happened && (!needsAnswer(this.action) || this.#safely(() => expect(answer)))
    const list = tookEffect ? this.effects : this.misses
    list.push({
      ...answer,
      at: DateTime.unsafeMake(this.#clock.unsafeCurrentTimeMillis()),
      rule: this.name,
      action: this.action._tag,
      statement: execution.sql.slice(0, maxStatement),
      applicationName: connection.applicationName,
      backendPid: connection.backendPid
    })
    if (list.length > maxRecords) list.shift()
    if (!tookEffect) return
    this.#counts.tookEffect++
    for (const waiter of this.#waiting) if (this.#counts.tookEffect >= waiter.atLeast) waiter.resume()
  }

  /** Calls back, at once or later, when at least so many faults took effect. Returns how to give up. */
  whenEffects(atLeast: number, resume: () => void): () => void {
    if (this.#counts.tookEffect >= atLeast) {
      resume()
      return () => undefined
    }
    const waiter = {
      atLeast,
      resume: () => {
        this.#waiting.delete(waiter)
        resume()
      }
    }
    this.#waiting.add(waiter)
    return () => void this.#waiting.delete(waiter)
  }

  /** Ends a fault when the effect is over, or at the latest when the rule is removed. */
  endWhen(until: Effect.Effect<unknown>, end: () => void): void {
    if (this.#removed) return end()
    const once = () => {
      if (this.#undo.delete(once)) end()
    }
    this.#undo.add(once)
    this.#run(until, once)
  }

  /** Ends a lasting fault when the rule is removed. Returns how to forget it before. */
  endAtRemoval(end: () => void): () => void {
    this.#undo.add(end)
    return () => void this.#undo.delete(end)
  }

  remove(): void {
    this.#removed = true
    for (const undo of this.#undo) undo()
    this.#undo.clear()
  }

  /** A test's own function must not bring the proxy down from inside a socket event; its throw is counted. */
  #safely(judge: () => boolean): boolean {
    try {
      return judge()
    } catch {
      this.#counts.defects++
      return false
    }
  }
}
