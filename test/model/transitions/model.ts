/**
 * A job queue in memory, as simple as it can be said: what the SQL engine must look like from outside. It knows nothing of
 * segments, cursors or tables. Where the engine is free to choose (which of two lanes, which of two jobs that are due at the
 * same time) it takes the engine's choice and checks the rule.
 */

/** Minutes. The engine's clock is moved on by the driver, and what passes by itself meanwhile is less than one. */
export type Time = number

export type State =
  | "available"
  | "running"
  | "waiting"
  | "parked"
  | "scheduled"
  | "retryable"
  | "snoozed"
  | "gated"
  | "completed"
  | "failed"
  | "cancelled"
  | "discarded"
  | "dead_lettered"

export type Outcome =
  | "completed"
  | "retried"
  | "snoozed"
  | "released"
  | "gated"
  | "failed"
  | "cancelled"
  | "discarded"
  | "dead_lettered"
  | "rescued"

/** How long a key is held: until the first claim, until the end, also after success, after any end. */
export const presets = ["unclaimed", "incomplete", "successful", "all"] as const

export interface Unique {
  readonly by?: ReadonlyArray<"kind" | "queue" | "args"> | undefined
  readonly key?: string | undefined
  readonly states: number
  readonly window?: Time | undefined
  readonly conflict: "skip" | "replace" | "error"
}

export interface NewJob {
  readonly queue: string
  readonly args: number
  readonly priority: number
  readonly maxAttempts: number
  readonly delay?: Time | undefined
  readonly unique?: Unique | undefined
}

/** When something became claimable: the transaction that made it so began at `from` and was seen at `seen`. */
interface Order {
  readonly from: number
  readonly seen: number
  readonly rank: number
}

export interface Job {
  readonly id: number
  queue: string
  priority: number
  args: number
  state: State
  attempt: number
  lease: number
  maxAttempts: number
  /** Of a job that waits to be due, with the step that said so: the tie-break. */
  due: Time
  dueSince: number
  readyAt: Time
  order: Order
  key: string | undefined
  keeps: number
  errors: number
  progress: number | null
  callbackResult: number | null
}

export interface Callback {
  readonly id: string
  readonly timeout: Time
  deadline: Time
  result: number | null
  error: boolean
  answered: boolean
}

/** One attempt: a claimed run of a job, of which somebody has the token. */
export interface Run {
  readonly job: Job
  readonly lease: number
  /** What keeps the evidence of it, until that is pruned. */
  readonly home: number
  readonly deadline: Time
  outcome: Outcome | undefined
  closer: number | undefined
  /** It has left its home. */
  moved: boolean
  gone: boolean
  beatAt: Time
  beaten: boolean
  callback: Callback | undefined
}

export interface Detail {
  readonly delay?: Time | undefined
  readonly error?: boolean | undefined
  readonly progress?: number | undefined
}

interface Holder {
  readonly job: Job
  readonly states: number
  readonly expires: Time
}

/** What an open transaction did so far. It happens when it commits. */
type Effect =
  | { readonly of: "enqueue"; readonly job: Job; readonly holder: Holder | undefined }
  | {
      readonly of: "complete"
      readonly run: Run
      readonly progress: number | null
      /** Whether beats find the attempt's state held by it. */
      readonly holds: boolean
    }

interface Transaction {
  readonly from: number
  effects: ReadonlyArray<Effect>
  savepoint: ReadonlyArray<Effect> | undefined
}

export class Difference extends Error {}

/** How often what was answered. */
export const answered = new Map<string, number>()

export const count = (what: string): void => void answered.set(what, (answered.get(what) ?? 0) + 1)

const countAll = (what: string, answer: unknown): void => {
  if (Array.isArray(answer)) for (const one of answer) countAll(what, one)
  else if (typeof answer === "string") count(`${what.replace(/ of job \d+/, "")}: ${answer}`)
}

export const same = (what: string, engine: unknown, model: unknown): void => {
  countAll(what, engine)
  const [actual, expected] = [JSON.stringify(engine), JSON.stringify(model)]
  if (actual !== expected) throw new Difference(`${what}: the engine says ${actual}, the model ${expected}`)
}

const ended: ReadonlyArray<State> = ["failed", "cancelled", "discarded", "dead_lettered"]
const deferred: ReadonlyArray<State> = ["scheduled", "retryable", "snoozed"]
const waits = (job: Job): boolean => job.state === "available" || job.state === "gated" || deferred.includes(job.state)
const runs = (job: Job): boolean => ["running", "waiting", "parked"].includes(job.state)
/** Pauses that nobody chose are seconds; the driver puts half an hour on top of each, so that no test waits for one. */
const backoff = (attempt: number): Time => (attempt === 1 ? 0 : 30)

const keyOf = (job: NewJob, { by, key }: Unique): string => {
  const fields = by ?? (key === undefined ? ["kind", "args"] : ["kind"])
  return JSON.stringify([
    fields.includes("kind") ? "k" : null,
    fields.includes("queue") ? job.queue : null,
    fields.includes("args") ? [job.args] : null,
    key ?? null
  ])
}

export class Model {
  now: Time = 0
  step = 0
  readonly jobs = new Map<number, Job>()
  readonly runs: Array<Run> = []
  readonly holders = new Map<string, Holder>()
  readonly paused = new Set<string>()
  /** Queues for which caller-owned completion is disabled. */
  readonly disabled = new Set<string>()
  /** Callback ids that nobody will ever answer again, and why. */
  readonly callbacks: Array<{ readonly id: string; readonly run: Run }> = []
  transaction: Transaction | undefined
  /**
   * Queues out of whose lanes an operator took something: a lane counts as old as what stood at its head, until a claim has
   * read past it.
   */
  private readonly thinned = new Set<string>()

  readonly settings: Readonly<Record<string, { readonly deadLetter?: boolean; readonly deadline?: Time }>>

  constructor(settings: Model["settings"]) {
    this.settings = settings
  }

  /** Whether the open transaction has finalized this attempt: whoever asks now is told busy, or waits. */
  locked(run: Run): boolean {
    return this.completion(run) !== undefined
  }

  private completion(run: Run) {
    return this.transaction?.effects.find((effect) => effect.of === "complete" && effect.run === run)
  }

  private lockedKey(key: string): boolean {
    return (
      this.transaction?.effects.some((effect) =>
        effect.of === "enqueue"
          ? effect.job.key === key
          : effect.run.job.key === key && effect.run.job.keeps < 2 && this.holders.get(key)?.job === effect.run.job
      ) ?? false
    )
  }

  private holder(key: string): Holder | undefined {
    const found = this.holders.get(key)
    return found !== undefined && found.expires > this.now ? found : undefined
  }

  private holderSeenBy(key: string, inside: boolean): Holder | undefined {
    let found = this.holder(key)
    for (const effect of inside ? (this.transaction?.effects ?? []) : []) {
      if (effect.of === "enqueue" && effect.job.key === key) found = effect.holder
      if (effect.of === "complete" && found?.job === effect.run.job && found.states < 2) found = undefined
    }
    return found
  }

  private release(job: Job, states: number): void {
    const { key } = job
    if (key === undefined || this.lockedKey(key)) return
    const found = this.holders.get(key)
    if (found?.job === job && found.states < states) this.holders.delete(key)
  }

  private ready(job: Job, rank = 0): void {
    job.state = "available"
    job.order = { from: this.step, seen: this.step, rank }
  }

  // ---- Enqueue

  /** What the call must answer; `learn` then takes the ids that the engine drew. */
  enqueue(
    items: ReadonlyArray<NewJob>,
    inside: boolean
  ): "conflict" | "blocked" | ((answers: ReadonlyArray<readonly [id: number, answer: string]>) => void) {
    const claimed = new Map<string, number>()
    const plan = items.map((item, index) => {
      const key = item.unique === undefined ? undefined : keyOf(item, item.unique)
      const twin = key === undefined ? undefined : claimed.get(key)
      const holder = key === undefined ? undefined : this.holderSeenBy(key, inside)
      if (key !== undefined && holder === undefined && twin === undefined) claimed.set(key, index)
      return { item, key, twin, holder }
    })
    if (!inside && plan.some(({ key }) => key !== undefined && this.lockedKey(key))) return "blocked"
    const taken = plan.filter(({ holder, twin }) => holder !== undefined || twin !== undefined)
    if (taken.some(({ item }) => item.unique?.conflict === "error")) return "conflict"
    return (answers) => {
      const made: Array<Job | undefined> = []
      const expected = plan.map(({ holder, item, key, twin }, index): readonly [number, string] => {
        const id = answers[index]?.[0] ?? 0
        if (holder !== undefined) return [holder.job.id, "existing"]
        if (twin !== undefined) return [answers[twin]?.[0] ?? 0, "existing"]
        if (this.jobs.has(id)) throw new Difference(`job ${id} was made twice`)
        const due = this.now + (item.delay ?? 0)
        const job: Job = {
          id,
          queue: item.queue,
          priority: item.priority,
          args: item.args,
          state: due > this.now ? "scheduled" : "available",
          attempt: 0,
          lease: 0,
          maxAttempts: item.maxAttempts,
          due,
          dueSince: this.step,
          readyAt: this.now,
          order: { from: this.transaction?.from ?? this.step, seen: this.step, rank: this.step * 1000 + index },
          key,
          keeps: item.unique?.states ?? 0,
          errors: 0,
          progress: null,
          callbackResult: null
        }
        made[index] = job
        const states = item.unique?.states ?? 0
        const entry =
          key === undefined ? undefined : { job, states, expires: this.now + (item.unique?.window ?? Infinity) }
        if (inside && this.transaction !== undefined) {
          this.transaction.effects = [...this.transaction.effects, { of: "enqueue", job, holder: entry }]
        } else {
          job.order = { ...job.order, from: this.step }
          this.jobs.set(id, job)
          if (key !== undefined && entry !== undefined) this.holders.set(key, entry)
        }
        return [id, "inserted"]
      })
      const replaced = new Map<Job, boolean>()
      const final = expected.map(([id, answer], index): readonly [number, string] => {
        const item = items[index]
        if (answer === "inserted" || item?.unique?.conflict !== "replace") return [id, answer]
        const job = plan[index]?.holder?.job ?? made[plan[index]?.twin ?? -1]
        if (job === undefined || (job.state !== "scheduled" && job.state !== "retryable")) return [id, answer]
        job.queue = item.queue
        job.priority = item.priority
        job.args = item.args
        job.maxAttempts = Math.max(item.maxAttempts, job.attempt + 1)
        if (item.delay !== undefined) {
          job.due = this.now + item.delay
          job.dueSince = this.step
          replaced.set(job, true)
        }
        return [id, "replaced"]
      })
      for (const job of replaced.keys()) {
        if (job.due <= this.now) {
          job.readyAt = job.due
          this.ready(job, this.step * 1000 + 999) // behind what the same call inserted
        }
      }
      same("enqueue", answers, final)
    }
  }

  begin(): void {
    this.transaction = { from: this.step, effects: [], savepoint: undefined }
  }

  commit(): void {
    const { effects } = this.transaction ?? { effects: [] }
    this.transaction = undefined
    for (const effect of effects) {
      if (effect.of === "complete") {
        this.end(effect.run, "completed", {})
        effect.run.job.progress = effect.progress
      } else {
        const { holder, job } = effect
        job.order = { ...job.order, seen: this.step }
        this.jobs.set(job.id, job)
        if (job.key !== undefined && holder !== undefined) this.holders.set(job.key, holder)
      }
    }
  }

  // ---- Claims

  /** `A` has to be claimed first: it was seen before `B`'s transaction began, or is of the same one and earlier. */
  private precedes(a: Job, b: Job): boolean {
    if (a.order.seen < b.order.from) return true
    return a.order.from === b.order.from && a.order.seen === b.order.seen && a.order.rank < b.order.rank
  }

  claimed(
    queue: string,
    limit: number,
    taken: ReadonlyArray<{
      readonly id: number
      readonly lease: number
      readonly attempt: number
      readonly home: number
    }>
  ): ReadonlyArray<Run> {
    const there = [...this.jobs.values()].filter((job) => job.queue === queue && job.state === "available")
    same(`claim of ${queue}: how many`, taken.length, this.paused.has(queue) ? 0 : Math.min(limit, there.length))
    const jobs = taken.map(({ id }) => {
      const job = there.find((one) => one.id === id)
      if (job === undefined) throw new Difference(`claim: job ${id} is not there to be claimed`)
      return job
    })
    same("claim: each once", new Set(jobs).size, jobs.length)
    const left = there.filter((job) => !jobs.includes(job))
    jobs.forEach((job, index) => {
      const later = [...jobs.slice(index + 1), ...left].find(
        (one) => one.priority === job.priority && this.precedes(one, job)
      )
      if (later !== undefined) throw new Difference(`claim: job ${later.id} had to come before ${job.id}`)
    })
    const [first] = jobs
    if (first !== undefined && !this.thinned.has(queue)) {
      const counts = (job: Job) => job.readyAt + job.priority - 1
      for (const priority of [1, 2, 3, 4].filter((one) => one !== first.priority)) {
        const lane = there.filter((job) => job.priority === priority)
        const heads = lane.filter((job) => !lane.some((one) => this.precedes(one, job)))
        if (heads.length > 0 && heads.every((job) => counts(job) < counts(first))) {
          throw new Difference(`claim: priority ${priority} had to come before job ${first.id}`)
        }
      }
    }
    if (taken.length < limit && !this.paused.has(queue)) this.thinned.delete(queue)
    return jobs.map((job, index) => {
      job.state = "running"
      job.attempt++
      job.lease++
      same("claim: attempt and run lease", [taken[index]?.attempt, taken[index]?.lease], [job.attempt, job.lease])
      if (job.key !== undefined && job.keeps === 0) {
        this.release(job, 1)
        job.key = undefined
      }
      const run: Run = {
        job,
        lease: job.lease,
        home: taken[index]?.home ?? -1,
        deadline: this.now + (this.settings[queue]?.deadline ?? Infinity),
        outcome: undefined,
        closer: undefined,
        moved: false,
        gone: false,
        beatAt: this.now,
        beaten: false,
        callback: undefined
      }
      this.runs.push(run)
      return run
    })
  }

  // ---- The end of an attempt

  end(run: Run, outcome: Outcome, detail: Detail, closer?: number): void {
    const { callback, job } = run
    run.outcome = outcome
    run.closer = closer
    job.progress = detail.progress ?? job.progress
    if (callback?.answered === true && !callback.error) job.callbackResult = callback.result
    if (outcome === "completed") {
      job.state = "completed"
      this.release(job, 2)
      return
    }
    if (detail.error === true) job.errors++
    const exhausted = (outcome === "retried" || outcome === "rescued") && job.attempt >= job.maxAttempts
    if (exhausted || ended.some((state) => state === outcome)) {
      const dead =
        outcome === "dead_lettered" ||
        ((exhausted || outcome === "failed") && this.settings[job.queue]?.deadLetter === true)
      job.state = dead ? "dead_lettered" : outcome === "cancelled" || outcome === "discarded" ? outcome : "failed"
      this.release(job, 3)
      return
    }
    const delay = detail.delay ?? (outcome === "rescued" ? backoff(job.attempt) : 0)
    if (outcome === "snoozed" || outcome === "released" || outcome === "gated") job.attempt--
    if (outcome === "gated" && this.disabled.has(job.queue)) {
      job.state = "gated"
      return
    }
    job.state = outcome === "snoozed" ? "snoozed" : "retryable"
    job.due = this.now + delay
    job.dueSince = this.step
    if (delay === 0) {
      job.readyAt = job.due
      this.ready(job)
    }
  }

  /** What a worker's report of an attempt's end is answered, and does. */
  close(run: Run, outcome: Outcome, detail: Detail, closer: number): "closed" | "repeated" | "stale" {
    if (run.outcome === undefined && run.job.state !== "parked") {
      this.end(run, outcome, detail, closer)
      return "closed"
    }
    return run.closer === closer && this.remembered(run) ? "repeated" : "stale"
  }

  remembered(run: Run): boolean {
    return run.moved || !run.gone
  }

  evidence(run: Run): readonly [string, string | null] {
    if (!this.remembered(run)) return ["unknown", null]
    if (run.outcome !== undefined) return ["closed", run.outcome]
    return [run.job.state === "parked" ? "parked" : "open", null]
  }

  /** Completion in the caller's transaction, or in one of its own. */
  complete(run: Run, progress: number | null, inside: boolean): "completed" | "WA001" | "WA002" | "WA006" | "blocked" {
    if (this.locked(run)) return inside ? "WA001" : "blocked"
    if (run.outcome !== undefined) return "WA001"
    if (run.job.state !== "running") return "WA002"
    if (this.disabled.has(run.job.queue)) return "WA006"
    if (inside && this.transaction !== undefined) {
      const effect: Effect = {
        of: "complete",
        run,
        progress: progress ?? run.job.progress,
        holds: run.beaten || run.moved
      }
      this.transaction.effects = [...this.transaction.effects, effect]
    } else {
      this.end(run, "completed", { progress: progress ?? undefined })
    }
    return "completed"
  }

  /** A beat; what it says of an attempt that is not the runtime's any more. */
  beat(run: Run, progress: number | undefined): string | null | undefined {
    if (run.outcome !== undefined) return this.remembered(run) ? run.outcome : null
    if (run.job.state === "parked") return "parked"
    const completion = this.completion(run)
    if (completion?.of === "complete" && completion.holds) return "busy"
    run.beatAt = this.now
    run.beaten = true
    run.job.progress = progress ?? run.job.progress
    return undefined
  }

  rescue(staleness: Time): number {
    const lost = this.runs.filter((run) => {
      if (run.outcome !== undefined || this.locked(run)) return false
      const late = (run.callback?.deadline ?? Infinity) <= this.now
      if (run.job.state === "parked") return late
      const lateForLong = (run.callback?.deadline ?? Infinity) <= this.now - staleness
      return (
        run.beatAt <= this.now - staleness || run.deadline <= this.now || (run.job.state === "waiting" && lateForLong)
      )
    })
    for (const run of lost) this.end(run, "rescued", { error: true })
    return lost.length
  }

  // ---- Callbacks

  register(run: Run, timeout: Time, id: string | null): "registered" | "stale" | "busy" {
    if (this.locked(run)) return "busy"
    if (run.outcome !== undefined || run.job.state === "parked") return "stale"
    run.moved = true
    run.beatAt = this.now
    run.job.state = "running"
    if (id !== null) {
      run.callback = { id, timeout, deadline: this.now + timeout, result: null, error: false, answered: false }
      this.callbacks.push({ id, run })
    }
    return "registered"
  }

  wait(run: Run, id: string): readonly [string, number | null] {
    if (this.locked(run)) return ["busy", null]
    if (run.outcome !== undefined || !run.moved || run.job.state === "parked") return ["stale", null]
    const { callback } = run
    if (callback?.id !== id) return ["replaced", null]
    const late = callback.deadline <= this.now
    const answer = callback.error ? "failed" : callback.answered ? "answered" : late ? "timed_out" : "waiting"
    if (answer !== "waiting" || run.job.state !== "waiting") run.beatAt = this.now
    run.job.state = answer === "waiting" ? "waiting" : "running"
    if (answer === "timed_out") run.callback = undefined
    return [answer, callback.result]
  }

  stopWaiting(run: Run, id: string): string {
    if (this.locked(run)) return "busy"
    if (run.outcome !== undefined || !run.moved) return "stale"
    if (run.job.state === "waiting" && run.callback?.id === id) run.job.state = "running"
    return "held"
  }

  park(run: Run, id: string, progress: number | null): string {
    if (this.locked(run)) return "busy"
    if (run.outcome !== undefined) return "stale"
    if (run.callback?.id !== id) return "replaced"
    if (run.job.state !== "parked") run.job.progress = progress ?? run.job.progress
    run.job.state = "parked"
    return run.callback.answered ? this.leavePark(run, run.callback) : "parked"
  }

  private leavePark(run: Run, { error }: Callback): "released" | "retried" {
    const outcome = error ? "retried" : "released"
    this.end(run, outcome, error ? { error, delay: backoff(run.job.attempt) } : {})
    return outcome
  }

  answer(id: string, verb: "resume" | "complete" | "fail" | "heartbeat", result: number): string {
    const run = this.callbacks.find((one) => one.id === id)?.run
    const callback = run?.callback
    if (run === undefined || callback?.id !== id) return "unknown"
    if (run.outcome !== undefined) return callback.answered ? "already" : "unknown"
    if (this.locked(run)) return "busy"
    if (callback.answered) return "already"
    if (verb === "heartbeat") {
      callback.deadline = this.now + callback.timeout
      return "extended"
    }
    callback.answered = true
    callback.error = verb === "fail"
    callback.result = verb === "fail" ? null : result
    if (verb === "complete") {
      this.end(run, "completed", {})
      return "completed"
    }
    if (run.job.state === "parked") this.leavePark(run, callback)
    return verb === "fail" ? "failed" : "resumed"
  }

  // ---- Time and maintenance

  /** Those that are due and came into their lanes: the first ones. */
  promoted(limit: number, count: number, ids: ReadonlySet<number>): void {
    const due = [...this.jobs.values()].filter((job) => deferred.includes(job.state) && job.due <= this.now)
    same("promote: how many", count, Math.min(limit, due.length))
    const taken = due.filter((job) => ids.has(job.id))
    same("promote: which", [taken.length, ids.size], [count, count])
    for (const job of taken) {
      const earlier = due.find((one) => !ids.has(one.id) && one.due < job.due)
      if (earlier !== undefined) throw new Difference(`promote: job ${earlier.id} was due before ${job.id}`)
    }
    for (const job of taken) {
      job.readyAt = job.due
      this.ready(job, job.due)
    }
  }

  /** The evidence that was kept there is gone. Nothing that is open may have been. */
  pruned(home: number): void {
    for (const run of this.runs) {
      if (run.home !== home || run.gone) continue
      if (run.outcome === undefined && !run.moved) throw new Difference(`prune: attempt of job ${run.job.id} is open`)
      run.gone = true
      if (run.job.state === "completed" && run.lease === run.job.lease && !run.moved) this.jobs.delete(run.job.id)
    }
  }

  moved(run: Run): void {
    if (run.outcome !== undefined || this.locked(run)) throw new Difference(`job ${run.job.id} is not to be moved`)
    run.moved = true
  }

  // ---- Operators

  private open(job: Job): Run | undefined {
    return this.runs.find((run) => run.job === job && run.outcome === undefined)
  }

  cancel(id: number): string {
    const job = this.jobs.get(id)
    if (job === undefined) return "gone"
    if (waits(job)) {
      if (job.state === "available") this.thinned.add(job.queue)
      job.state = "cancelled"
      this.release(job, 3)
      if (job.keeps === 0) job.key = undefined
      return "cancelled"
    }
    const run = this.open(job)
    if (run === undefined) return "finished"
    if (this.locked(run)) return "busy"
    this.end(run, "cancelled", { error: true })
    return "cancelled"
  }

  delete(id: number): string {
    const job = this.jobs.get(id)
    if (job === undefined) return "gone"
    if (runs(job)) return "running"
    if (job.state === "completed") return "finished"
    if (job.state === "available") this.thinned.add(job.queue)
    this.release(job, 4)
    this.jobs.delete(id)
    return "deleted"
  }

  reprioritize(id: number, priority: number): string {
    const job = this.jobs.get(id)
    if (job === undefined) return "gone"
    if (runs(job)) return "running"
    if (!waits(job)) return "finished"
    if (job.priority === priority) return "unchanged"
    job.priority = priority
    if (job.state === "available") this.thinned.add(job.queue)
    if (job.state === "available") this.ready(job)
    return "reprioritized"
  }

  /** What was put aside runs again, in the order of the ids. Answers how many jobs. */
  enable(queue: string): number {
    this.disabled.delete(queue)
    const aside = [...this.jobs.values()].filter((job) => job.state === "gated" && job.queue === queue)
    for (const [rank, job] of aside.sort((a, b) => a.id - b.id).entries()) {
      job.readyAt = this.now
      this.ready(job, rank)
    }
    return aside.length
  }

  redrive(id: number): string {
    const job = this.jobs.get(id)
    if (job === undefined) return "gone"
    if (job.state === "completed") return "finished"
    if (!ended.includes(job.state)) return "live"
    if (job.key !== undefined) {
      if (this.lockedKey(job.key)) return "busy"
      const holder = this.holder(job.key) ?? { job, states: 1, expires: Infinity }
      if (holder.job !== job) return "duplicate"
      this.holders.set(job.key, holder)
      job.keeps = holder.states
    }
    job.attempt = 0
    job.callbackResult = null
    job.readyAt = this.now
    this.ready(job)
    return "redriven"
  }
}
