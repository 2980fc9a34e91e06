/** Runs a sequence on the engine and on the model, and compares every answer and, every few steps, everything there is to see. */
import { Effect } from "effect"
import { attemptsOf, beat, close, complete, settle, type Attempt } from "../../pg/engine.js"
import type { PgFault, Row, Session } from "../../pg/database.js"
import { moment, type Command, type Sequence } from "./commands.js"
import { count, Difference, Model, presets, same, type NewJob, type Run, type Unique } from "./model.js"

export interface World {
  /** Two sessions: one of calls that commit at once, one of a transaction that stays open. */
  readonly main: Session
  readonly other: Session
}

const settings = { a: {}, b: { deadLetter: true }, c: { deadline: 30 } }

const hour = 60_000
const optsOf = (job: NewJob) => ({
  priority: job.priority,
  max_attempts: job.maxAttempts,
  ...(job.delay === undefined ? {} : { delay_ms: Math.round(job.delay * hour) }),
  ...(job.unique === undefined ? {} : { unique: uniqueOf(job.unique) })
})
const uniqueOf = ({ by, conflict, key, states, window }: Unique) => ({
  ...(by === undefined ? {} : { by }),
  ...(key === undefined ? {} : { key }),
  states: presets[states],
  ...(window === undefined ? {} : { window_ms: window * hour }),
  on_conflict: conflict
})

const at = <A>(items: ReadonlyArray<A>, index: number): A | undefined =>
  items.length === 0 ? undefined : items[index % items.length]
const present = <A>(item: A | undefined): item is A => item !== undefined
const distinct = <A>(items: ReadonlyArray<A | undefined>): ReadonlyArray<A> => [...new Set(items.filter(present))]

const gone = ["unknown", "finished"]

/** The answer, or the SQLSTATE of a refusal that a sequence may meet. */
const answerOr = <A>(effect: Effect.Effect<A, PgFault>): Effect.Effect<A | string, PgFault> =>
  Effect.catchIf(
    effect,
    ({ code }) => ["23505", "55P03", "WA001", "WA002", "WA003", "WA006"].includes(code),
    ({ code }) => Effect.succeed(code)
  )

export class Driver {
  readonly model = new Model(settings)
  private readonly tokens = new Map<Run, Attempt>()
  private readonly marks: Array<unknown> = [null, null]
  private last: { readonly runs: ReadonlyArray<Run>; readonly closer: number } | undefined
  private closers = 0

  private readonly world: World
  private readonly compareEvery: number

  constructor(world: World, compareEvery: number) {
    this.world = world
    this.compareEvery = compareEvery
  }

  private token(run: Run): Attempt {
    const found = this.tokens.get(run)
    if (found === undefined) throw new Error("a run without a token")
    return found
  }

  private choose(stale: boolean, pick: number, among = (_: Run): boolean => true): Run | undefined {
    const { runs } = this.model
    return at(stale ? runs : runs.filter((run) => run.outcome === undefined && among(run)), pick)
  }

  /** Brings about what a command needs: an open attempt, so that few commands come to nothing. */
  private prime(): Effect.Effect<void, PgFault> {
    const { model } = this
    const there = [...model.jobs.values()].find((job) => job.state === "available" && !model.paused.has(job.queue))
    const claim = there === undefined ? Effect.void : this.claim(there.queue, 2)
    if (there !== undefined) return claim
    const job: NewJob = { queue: "a", args: 0, priority: 2, maxAttempts: 2 }
    return this.resume("a").pipe(Effect.andThen(this.enqueue([job, job], false)), Effect.andThen(this.claim("a", 2)))
  }

  private target(stale: boolean, pick: number, among = (_: Run): boolean => true) {
    const found = this.choose(stale, pick, among)
    if (found !== undefined) return Effect.succeed(found)
    return Effect.map(this.prime(), () => this.choose(stale, pick, among))
  }

  /** As many distinct ones. */
  private targets(stale: boolean, picks: ReadonlyArray<number>) {
    return Effect.map(
      Effect.forEach(picks, (pick) => this.target(stale, pick)),
      (found) => distinct(found)
    )
  }

  private register(run: Run, timeout: number) {
    return this.world.main
      .rows(
        "select answer, callback_id::text as id from awa.register_callback($1, $2, $3, $4, $5, $6, $7::int * interval '1 minute')",
        [...this.fields(run), timeout]
      )
      .pipe(
        Effect.map(([row]) => {
          const id = row?.["id"]
          same(
            "register_callback",
            row?.["answer"],
            this.model.register(run, timeout, typeof id === "string" ? id : null)
          )
        })
      )
  }

  private ids(picks: ReadonlyArray<number>, among: (id: number) => boolean): ReadonlyArray<number> {
    const ids = [...this.model.jobs.keys()]
    const some = ids.filter(among)
    return distinct(picks.map((pick) => at(pick % 4 === 0 ? ids : some, pick)))
  }

  run({ commands, finish }: Sequence) {
    return Effect.gen(this, function* () {
      for (const [index, command] of commands.entries()) {
        yield* this.step(command)
        if (index % this.compareEvery === 0) yield* this.compare()
      }
      yield* this.compare()
      if (finish) yield* this.finish()
    })
  }

  private inSavepoint<A>(effect: Effect.Effect<A, PgFault>) {
    const { other } = this.world
    return other.script("savepoint call").pipe(
      Effect.andThen(answerOr(effect)),
      Effect.tap((answer) =>
        other.script(typeof answer === "string" ? "rollback to savepoint call" : "release savepoint call")
      )
    )
  }

  private enqueue(given: ReadonlyArray<NewJob>, wanted: boolean) {
    const inside = wanted && this.model.transaction !== undefined
    // A replacement that is not committed would lock the job's row for whatever comes to it: that is told elsewhere.
    const items = given.map(({ unique, ...job }): NewJob => ({
      ...job,
      unique: unique !== undefined && inside && unique.conflict === "replace" ? { ...unique, conflict: "skip" } : unique
    }))
    const session = inside ? this.world.other : this.world.main
    const jobs = items.map((job) => ({ kind: "k", queue: job.queue, args: job.args, opts: optsOf(job) }))
    const call = session.rows("select job_id, answer from awa.insert_jobs($1::text::jsonb)", [JSON.stringify(jobs)])
    return (inside ? this.inSavepoint(call) : answerOr(call)).pipe(
      Effect.map((answer) => {
        this.model.step++
        const expected = this.model.enqueue(items, inside)
        if (typeof answer === "string" || typeof expected === "string") {
          const states = { "55P03": "blocked", "23505": "conflict" }
          same(
            "enqueue",
            typeof answer === "string"
              ? Object.entries(states).find(([state]) => state === answer)?.[1]
              : answer.length,
            typeof expected === "string" ? expected : items.length
          )
        } else {
          expected(answer.map((row): readonly [number, string] => [Number(row["job_id"]), String(row["answer"])]))
        }
        if (items.every((job) => job.delay !== moment)) return false
        this.model.now += moment
        return true
      }),
      Effect.flatMap((wait) => (wait ? Effect.sleep("3 millis") : Effect.void))
    )
  }

  private claim(queue: string, limit: number) {
    return this.world.main.rows("select * from awa.claim($1, $2, 1)", [queue, limit]).pipe(
      Effect.map((rows) => {
        this.model.step++
        same("claim: a lane is busy", rows.filter((row) => row["lane_busy"] === true).length, 0)
        const attempts = attemptsOf(rows)
        const results = new Map(rows.map((row) => [Number(row["job_id"]), row["callback_result"]]))
        const runs = this.model.claimed(
          queue,
          limit,
          attempts.map((a) => ({
            id: Number(a.job_id),
            lease: Number(a.run_lease),
            attempt: a.attempt,
            home: a.claim_slot & 255
          }))
        )
        runs.forEach((run, index) => {
          const attempt = attempts[index]
          if (attempt === undefined) return
          this.tokens.set(run, attempt)
          const { job } = run
          same(
            `claim of job ${job.id}`,
            [attempt.priority, attempt.max_attempts, attempt.args, attempt.progress, results.get(job.id)],
            [job.priority, job.maxAttempts, job.args, job.progress, job.callbackResult]
          )
        })
      })
    )
  }

  private detail(item: {
    readonly delay?: number | undefined
    readonly error: boolean
    readonly progress?: number | undefined
  }) {
    return {
      ...(item.delay === undefined ? {} : { delay_ms: item.delay * hour }),
      ...(item.error ? { error: { name: "E", message: "m" } } : {}),
      ...(item.progress === undefined ? {} : { progress: item.progress })
    }
  }

  private step(command: Command): Effect.Effect<void, PgFault> {
    const { model } = this
    const { main, other } = this.world
    model.step++
    switch (command.do) {
      case "enqueue":
        return Effect.andThen(command.inside ? this.begin() : Effect.void, this.enqueue(command.items, command.inside))
      case "claim": {
        const queues = [...model.jobs.values()].filter((job) => job.state === "available").map((job) => job.queue)
        return this.claim(
          queues.length === 0 || queues.includes(command.queue) ? command.queue : (queues[0] ?? "a"),
          command.limit
        )
      }
      case "close":
        return Effect.gen(this, function* () {
          yield* this.targets(
            command.stale,
            command.items.map((item) => item.pick)
          )
          const items = command.items.map((item) => ({ ...item, run: this.choose(command.stale, item.pick) }))
          const runs = distinct(items.map(({ run }) => run))
          if (runs.length === 0) return
          const chosen = runs.flatMap((run) => items.filter((item) => item.run === run).slice(0, 1))
          const closer = ++this.closers
          this.last = { runs, closer }
          const hasState = command.state || runs.some((run) => run.beaten)
          const answers = yield* answerOr(this.closeAll(runs, chosen, closer, hasState))
          const waits = runs.some((run) => model.locked(run))
          const expected = waits
            ? "55P03"
            : runs.map((run, i) => {
                const item = chosen[i]
                return item === undefined ? "" : model.close(run, item.outcome, item, closer)
              })
          same("close", answers, expected)
        })
      case "repeat":
        return Effect.gen(this, function* () {
          if (this.last === undefined) return
          const { closer, runs } = this.last
          if (runs.some((run) => run.outcome === undefined)) return
          const answers = yield* close(
            main,
            runs.map((run) => this.token(run)),
            { closer, outcome: command.outcome }
          )
          same(
            "a flush that is tried again",
            answers,
            runs.map((run) => model.close(run, command.outcome, {}, closer))
          )
        })
      case "settle":
        return Effect.gen(this, function* () {
          const run = yield* this.target(command.stale, command.item.pick)
          if (run === undefined) return
          const closer = ++this.closers
          const { item } = command
          const answer = yield* settle(main, this.token(run), item.outcome, this.detail(item), closer)
          same("settle", answer, model.locked(run) ? "busy" : model.close(run, item.outcome, item, closer))
        })
      case "complete":
        return Effect.gen(this, function* () {
          const run = yield* this.target(command.stale, command.pick)
          if (run === undefined) return
          if (command.inside) yield* this.begin()
          const inside = command.inside && model.transaction !== undefined
          const call = complete(inside ? other : main, this.token(run), { progress: command.progress ?? null })
          const answer = yield* inside ? this.inSavepoint(call) : answerOr(call)
          const expected = model.complete(run, command.progress ?? null, inside)
          const said = typeof answer === "string" ? (answer === "55P03" ? "blocked" : answer) : answer["outcome"]
          same("complete_job", said, expected)
        })
      case "forge":
        return this.forge(command)
      case "beat":
        return Effect.gen(this, function* () {
          const runs = yield* this.targets(command.stale, command.picks)
          if (runs.length === 0) return
          const { progress } = command
          const told = progress === undefined ? {} : Object.fromEntries(runs.map((_, i) => [String(i + 1), progress]))
          const answers = yield* beat(
            main,
            runs.map((run) => this.token(run)),
            told
          )
          const expected = runs.flatMap((run, i) => {
            const answer = model.beat(run, progress)
            return answer === undefined ? [] : [[i + 1, answer]]
          })
          same("heartbeat", answers, expected)
        })
      case "begin":
        return this.begin()
      case "commit":
        if (model.transaction === undefined) return Effect.void
        model.commit()
        return other.script("commit")
      case "rollback":
        if (model.transaction === undefined) return Effect.void
        model.transaction = undefined
        return other.script("rollback")
      case "savepoint":
        if (model.transaction === undefined) return Effect.void
        model.transaction.savepoint = model.transaction.effects
        return other.script("savepoint mine")
      case "rollbackTo":
        if (model.transaction?.savepoint === undefined) return Effect.void
        model.transaction.effects = model.transaction.savepoint
        return other.script("rollback to savepoint mine")
      case "advance": {
        if (model.transaction !== undefined) {
          return Effect.andThen(this.step({ do: command.times === 1 ? "commit" : "rollback" }), this.step(command))
        }
        const minutes = command.times * 65
        model.now += minutes
        for (const [i, mark] of this.marks.entries()) this.marks[i] = { mark, minutes }
        return Effect.gen(this, function* () {
          yield* main.value("select model.advance($1::int * interval '1 minute')", [minutes])
          for (const [i, before] of this.marks.entries()) this.marks[i] = yield* this.moveMark(before)
        })
      }
      case "promote":
        return this.promote(command.promoter, command.limit)
      case "rescue":
        return this.rescue(command.staleness)
      case "rotate":
        return this.rotate(command.calls)
      case "turn":
        return Effect.gen(this, function* () {
          yield* this.rotate(2)
          yield* main.value("select awa.drain_segments()")
          yield* this.materialize(100)
          yield* this.prune()
        })
      case "spill":
        return Effect.gen(this, function* () {
          for (let turn = 0; turn < 3; turn++) yield* this.rotate(2)
          if (Number(yield* main.value("select awa.spill_oldest($1)", [command.limit])) > 0) count("spilled")
        })
      case "drain":
        return Effect.asVoid(main.value("select awa.drain_segments()"))
      case "prune":
        return Effect.asVoid(this.prune())
      case "materialize":
        return this.materialize(command.limit)
      case "sweep":
        return this.sweep()
      case "register":
        return Effect.gen(this, function* () {
          const run = yield* this.target(command.stale, command.pick)
          if (run !== undefined) yield* this.register(run, command.timeout)
        })
      case "wait":
        return Effect.gen(this, function* () {
          const target = yield* this.waiter(command.stale, command.pick, command.other)
          if (target === undefined) return
          const [row] = yield* main.rows(
            "select answer, result from awa.wait_callback($1, $2, $3, $4, $5, $6, $7::text::uuid)",
            [...this.fields(target.run), target.id]
          )
          same("wait_callback", [row?.["answer"], row?.["result"]], model.wait(target.run, target.id))
        })
      case "stopWaiting":
        return Effect.gen(this, function* () {
          const target = yield* this.waiter(command.stale, command.pick, false)
          if (target === undefined) return
          const answer = yield* main.value("select awa.stop_waiting($1, $2, $3, $4, $5, $6, $7::text::uuid)", [
            ...this.fields(target.run),
            target.id
          ])
          same("stop_waiting", answer, model.stopWaiting(target.run, target.id))
        })
      case "park":
        return Effect.gen(this, function* () {
          const target = yield* this.waiter(command.stale, command.pick, command.other)
          if (target === undefined) return
          const { progress } = command
          const answer = yield* main.value(
            "select awa.park_attempt($1, $2, $3, $4, $5, $6, $7::text::uuid, $8::text::jsonb)",
            [...this.fields(target.run), target.id, progress === undefined ? null : JSON.stringify(progress)]
          )
          same("park_attempt", answer, model.park(target.run, target.id, progress ?? null))
          yield* main.value("select model.stretch()")
        })
      case "answer":
        return Effect.gen(this, function* () {
          if (model.callbacks.length === 0) yield* this.waiter(false, command.pick, false)
          const known = model.callbacks.filter(({ id, run }) => run.callback?.id === id && run.outcome === undefined)
          const one = at(command.pick % 5 === 0 ? model.callbacks : known, command.pick)
          if (one === undefined) return
          const { result, verb } = command
          const said = verb === "heartbeat" ? [one.id] : [one.id, verb === "fail" ? "it failed" : String(result)]
          const second = verb === "heartbeat" ? "" : verb === "fail" ? ", $2" : ", $2::text::jsonb"
          const answer = yield* main.value(`select awa.${verb}_callback($1::text::uuid${second})`, said)
          same(`${verb}_callback`, answer, model.answer(one.id, verb, result))
          yield* main.value("select model.stretch()")
        })
      case "cancel":
        return this.operate(
          "cancel_jobs",
          this.ids(command.picks, (id) => !["completed", "cancelled"].includes(this.stateOf(id))),
          (id) => model.cancel(id)
        )
      case "delete":
        return this.operate(
          "delete_jobs",
          this.ids(command.picks, () => true),
          (id) => model.delete(id)
        )
      case "reprioritize":
        return this.operate(
          "reprioritize_jobs",
          this.ids(command.picks, (id) => this.stateOf(id) === "available"),
          (id) => model.reprioritize(id, command.priority),
          command.priority
        )
      case "redrive":
        return Effect.gen(this, function* () {
          const over = (id: number) => ["failed", "cancelled", "discarded", "dead_lettered"].includes(this.stateOf(id))
          if (![...model.jobs.keys()].some(over)) {
            const item = { pick: 0, outcome: "failed" as const, delay: undefined, error: true, progress: undefined }
            yield* this.step({ do: "settle", stale: false, item })
          }
          yield* this.operate("redrive_jobs", this.ids(command.picks, over), (id) => model.redrive(id))
        })
      case "pause": {
        const changed = !model.paused.has(command.queue)
        model.paused.add(command.queue)
        return Effect.map(main.value("select awa.pause_queue($1)", [command.queue]), (answer) =>
          same("pause", answer, changed)
        )
      }
      case "resume":
        return this.resume(command.queue)
      case "disable": {
        const changed = !model.disabled.has(command.queue)
        model.disabled.add(command.queue)
        return Effect.map(main.value("select awa.disable_caller_owned($1)", [command.queue]), (answer) =>
          same("disable", answer, changed)
        )
      }
      case "enable":
        return this.enable(command.queue)
    }
  }

  /** Its id is drawn at once: that is when a transaction begins to be older than others. */
  private begin() {
    if (this.model.transaction !== undefined) return Effect.void
    this.model.step++
    this.model.begin()
    return this.world.other.script("begin; select pg_current_xact_id()")
  }

  private stateOf(id: number): string {
    return this.model.jobs.get(id)?.state ?? ""
  }

  private fields(run: Run) {
    const { batch_id, batch_index, claim_slot, job_id, receipt_id, run_lease } = this.token(run)
    return [claim_slot, batch_id, batch_index, job_id, run_lease, receipt_id]
  }

  /** A run, and the callback that it is to wait for: its own, or any other that there ever was. */
  private waiter(stale: boolean, pick: number, other: boolean) {
    return Effect.gen(this, function* () {
      const found = this.choose(stale, pick, (one) => one.callback !== undefined)
      if (found !== undefined) return this.withCallback(found, pick, other)
      const run = yield* this.target(stale, pick)
      if (run === undefined) return undefined
      if (run.outcome === undefined) yield* this.register(run, 60)
      return this.withCallback(run, pick, other)
    })
  }

  private withCallback(run: Run, pick: number, other: boolean): { readonly run: Run; readonly id: string } | undefined {
    const id = other ? at(this.model.callbacks, pick)?.id : (run.callback?.id ?? at(this.model.callbacks, pick)?.id)
    return id === undefined ? undefined : { run, id }
  }

  private closeAll(
    runs: ReadonlyArray<Run>,
    items: ReadonlyArray<{
      readonly outcome: string
      readonly delay?: number | undefined
      readonly error: boolean
      readonly progress?: number | undefined
    }>,
    closer: number,
    hasState: boolean
  ) {
    const tokens = runs.map((run) => this.token(run))
    return this.world.main
      .rows(
        `select ord, answer from awa.close_attempts($1, $2::int[], $3::bigint[], $4::int[], $5::bigint[], $6::bigint[], $7::bigint[],
           $8::text[]::awa.outcome[], $9::text::jsonb, $10) order by ord`,
        [
          closer,
          tokens.map((a) => a.claim_slot),
          tokens.map((a) => a.batch_id),
          tokens.map((a) => a.batch_index),
          tokens.map((a) => a.job_id),
          tokens.map((a) => a.run_lease),
          tokens.map((a) => a.receipt_id),
          items.map((item) => item.outcome),
          JSON.stringify(Object.fromEntries(items.map((item, i) => [String(i + 1), this.detail(item)]))),
          hasState
        ]
      )
      .pipe(
        Effect.map((rows) => {
          same(
            "close: one answer for each",
            rows.map((row) => row["ord"]),
            runs.map((_, i) => i + 1)
          )
          return rows.map((row) => row["answer"])
        })
      )
  }

  /** A token that was never issued, beside every real one: nothing may come of it. */
  private forge({ how, pick, through }: { readonly how: number; readonly pick: number; readonly through: number }) {
    return Effect.flatMap(this.target(pick % 3 === 0, pick), (run) =>
      run === undefined ? Effect.void : this.forgeOf(run, how, through)
    )
  }

  private forgeOf(run: Run, how: number, through: number): Effect.Effect<void, PgFault> {
    const { main } = this.world
    const real = this.token(run)
    const changes: ReadonlyArray<Partial<Attempt>> = [
      { receipt_id: real.receipt_id + 1n },
      { run_lease: real.run_lease + 1n },
      { job_id: real.job_id + 1n },
      { batch_index: real.batch_index + 1 },
      { batch_id: real.batch_id + 1n },
      { claim_slot: real.claim_slot ^ 4096 },
      { claim_slot: real.claim_slot ^ 1 }
    ]
    const token: Attempt = { ...real, ...changes[how] }
    // Another segment says nothing of a lease, which is known by job, run lease and receipt.
    const held = this.model.runs.some(
      (one) => this.model.locked(one) && BigInt(one.job.id) === token.job_id && BigInt(one.lease) === token.run_lease
    )
    if (held || (run.moved && how > 2)) return Effect.void
    const forged = through % 5
    if (forged === 0) {
      return Effect.map(close(main, [token], { closer: ++this.closers, outcome: "failed" }), (answer) =>
        same("a forged token is closed", answer, ["stale"])
      )
    }
    if (forged === 1) {
      return Effect.map(answerOr(complete(main, token)), (answer) =>
        same("a forged token is completed", answer === "WA001" || answer === "WA003", true)
      )
    }
    if (forged === 2) return Effect.asVoid(beat(main, [token], { "1": 99 }))
    if (forged === 3) {
      return Effect.map(settle(main, token, "failed", {}, ++this.closers), (answer) =>
        same("a forged token is settled", answer, "stale")
      )
    }
    return Effect.map(
      main.value("select answer from awa.register_callback($1, $2, $3, $4, $5, $6, '1 hour')", [
        token.claim_slot,
        token.batch_id,
        token.batch_index,
        token.job_id,
        token.run_lease,
        token.receipt_id
      ]),
      (answer) => same("a forged token registers a callback", answer, "stale")
    )
  }

  private operate(verb: string, ids: ReadonlyArray<number>, expect: (id: number) => string, priority?: number) {
    if (ids.length === 0) return Effect.void
    const sorted = [...ids].sort((a, b) => a - b)
    const call =
      priority === undefined
        ? this.world.main.rows(`select * from awa.${verb}($1::bigint[])`, [sorted])
        : this.world.main.rows(`select * from awa.${verb}($1::bigint[], $2)`, [sorted, priority])
    return Effect.map(call, (rows) => {
      same(
        `${verb}: one answer for each`,
        rows.map((row) => Number(row["job_id"])),
        sorted
      )
      sorted.forEach((id, i) => {
        const [answer, expected] = [String(rows[i]?.["answer"]), expect(id)]
        if (expected !== "gone" || !gone.includes(answer)) same(`${verb} of job ${id}`, answer, expected)
      })
    })
  }

  private resume(queue: string) {
    const changed = this.model.paused.delete(queue)
    return Effect.map(this.world.main.value("select awa.resume_queue($1)", [queue]), (answer) =>
      same("resume", answer, changed)
    )
  }

  private enable(queue: string) {
    this.model.step++
    return Effect.map(this.world.main.value("select awa.enable_caller_owned($1)", [queue]), (moved) => {
      if (typeof moved === "number" && moved > 0) count("enabled: moved")
      same("enable: how many", moved, this.model.enable(queue))
    })
  }

  private moveMark(before: unknown) {
    const { mark, minutes } = isMoved(before) ? before : { mark: before, minutes: 0 }
    if (mark === null) return Effect.succeed(null)
    return this.world.main.value(
      `select jsonb_set($1::text::jsonb, '{run_at}', to_jsonb(($1::text::jsonb ->> 'run_at')::timestamptz - $2::int * interval '1 minute'))`,
      [JSON.stringify(mark), minutes]
    )
  }

  private promote(promoter: number, limit: number) {
    return Effect.gen(this, function* () {
      const mark = this.marks[promoter] ?? null
      const { main } = this.world
      const [row] = yield* main.rows("select promoted, next_due_ms, mark from awa.promote_due($1, $2::text::jsonb)", [
        limit,
        mark === null ? null : JSON.stringify(mark)
      ])
      if (promoter < 2) this.marks[promoter] = row?.["mark"] ?? null
      const left = new Set(yield* this.deferredIds())
      this.model.step++
      const before = [...this.model.jobs.values()].filter((job) =>
        ["scheduled", "retryable", "snoozed"].includes(job.state)
      )
      const moved = new Set(before.map((job) => job.id).filter((id) => !left.has(id)))
      this.model.promoted(limit, Number(row?.["promoted"]), moved)
    })
  }

  private deferredIds() {
    return Effect.map(this.world.main.rows("select job_id from awa.deferred_jobs"), (rows) =>
      rows.map((row) => Number(row["job_id"]))
    )
  }

  private rescue(staleness: number) {
    return Effect.map(
      this.world.main.value("select model.rescue($1::int * interval '1 minute')", [staleness]),
      (rescued) => same("rescue: how many", rescued, this.model.rescue(staleness))
    )
  }

  private rotate(calls: number): Effect.Effect<void, PgFault> {
    // The entries' sequence is what tells an idle segment; a session may have numbers of it in its cache.
    return this.world.main
      .script("select nextval('awa.entry_seq') from generate_series(1, 64)")
      .pipe(
        Effect.andThen(Effect.repeatN(this.world.main.value("select awa.rotate('0', 1)"), calls - 1)),
        Effect.asVoid
      )
  }

  /** What left the ring by it is learnt from where it is now. */
  private materialize(limit: number) {
    return this.world.main.value("select awa.materialize_long('0', $1)", [limit]).pipe(
      Effect.flatMap((count) =>
        count === 0 ? Effect.succeed([]) : this.world.main.rows("select job_id, run_lease from awa.leases")
      ),
      Effect.map((rows: ReadonlyArray<Row>) => {
        for (const run of this.model.runs) {
          const there = rows.some(
            (row) => Number(row["job_id"]) === run.job.id && Number(row["run_lease"]) === run.lease
          )
          if (there && !run.moved) {
            count("moved")
            this.model.moved(run)
          }
        }
      })
    )
  }

  private prune() {
    return answerOr(this.world.main.value("select awa.prune_segment('0')")).pipe(
      Effect.map((slot) => {
        if (typeof slot === "number") {
          count("pruned")
          this.model.pruned(slot)
        }
        return typeof slot === "number"
      })
    )
  }

  private sweep() {
    return Effect.asVoid(this.world.main.value("select awa.sweep('1 day', '10000 days', '10000 days', '10000 days')"))
  }

  compare() {
    const { model, tokens } = this
    const all = model.runs.map((run) => tokens.get(run)).filter(present)
    return this.world.main
      .value("select model.observe($1, $2, $3, $4, $5, $6)", [
        all.map((a) => a.claim_slot),
        all.map((a) => a.batch_id),
        all.map((a) => a.batch_index),
        all.map((a) => a.job_id),
        all.map((a) => a.run_lease),
        all.map((a) => a.receipt_id)
      ])
      .pipe(
        Effect.map((seen) => {
          const engine = decode(seen)
          const jobs = [...model.jobs.values()]
            .sort((a, b) => a.id - b.id)
            .map((job) => {
              const due = ["scheduled", "retryable", "snoozed"].includes(job.state)
                ? Math.round(job.due - model.now) + 0
                : null
              return [
                job.id,
                job.queue,
                job.priority,
                job.args,
                job.state,
                job.lease,
                job.attempt,
                job.maxAttempts,
                job.progress,
                job.errors,
                due
              ]
            })
          sameRows("jobs", engine.jobs, jobs)
          const keys = [...model.holders.values()]
            .filter(({ expires }) => expires > model.now)
            .map(({ job, states }) => [job.id, states])
          if (model.runs.some((run) => !model.remembered(run))) count("evidence: unknown")
          sameRows("unique keys", engine.keys, keys)
          sameRows(
            "evidence",
            engine.evidence,
            model.runs.map((run) => model.evidence(run)),
            false
          )
          const remembered = model.runs.filter((run) => model.remembered(run))
          sameRows(
            "attempts",
            engine.attempts,
            remembered.map((run) => [run.job.id, run.lease, run.outcome ?? null])
          )
          const leases = model.runs.filter((run) => run.moved && run.outcome === undefined)
          sameRows(
            "leases",
            engine.leases,
            leases.map((run) => [run.job.id, run.lease])
          )
        })
      )
  }

  /** Everything comes to its end: what is there runs and completes, and the ring is free. */
  private finish() {
    const { model } = this
    const { main, other } = this.world
    return Effect.gen(this, function* () {
      if (model.transaction !== undefined) {
        model.step++
        model.commit()
        yield* other.script("commit")
      }
      for (const queue of [...model.paused]) yield* this.resume(queue)
      for (const queue of [...model.disabled]) yield* this.enable(queue)
      for (let round = 0; round < 30; round++) {
        const alive = [...model.jobs.values()].filter(
          (job) => !["completed", "failed", "cancelled", "discarded", "dead_lettered"].includes(job.state)
        )
        if (alive.length === 0) break
        if (round === 29) throw new Difference(`job ${alive[0]?.id} does not come to an end`)
        yield* this.step({ do: "advance", times: 2 })
        yield* this.promote(round % 3, 100)
        for (const queue of ["a", "b", "c"]) yield* this.claim(queue, 100)
        for (const run of model.runs.filter((one) => one.outcome === undefined)) {
          model.step++
          if (run.job.state === "parked" && run.callback !== undefined) {
            const { id } = run.callback
            const answer = yield* main.value("select awa.complete_callback($1::text::uuid)", [id])
            same("complete_callback", answer, model.answer(id, "complete", 0))
          } else {
            const closer = ++this.closers
            const answers = yield* this.closeAll([run], [{ outcome: "completed", error: false }], closer, true)
            same("close", answers, [model.close(run, "completed", {}, closer)])
          }
        }
      }
      yield* this.compare()
      yield* this.sweep()
      yield* this.rotate(2)
      for (let round = 0; round < 10; round++) {
        yield* main.value("select awa.drain_segments()")
        yield* this.prune()
        yield* main.value("select awa.rotate('0', 1)")
      }
      same("what is left", yield* main.value("select model.leftovers()"), "free,free,free,open 0 0 0 0 0")
      yield* this.compare()
    })
  }
}

interface Seen {
  readonly jobs: ReadonlyArray<unknown>
  readonly keys: ReadonlyArray<unknown>
  readonly evidence: ReadonlyArray<unknown>
  readonly attempts: ReadonlyArray<unknown>
  readonly leases: ReadonlyArray<unknown>
}

const list = (value: unknown): ReadonlyArray<unknown> => (Array.isArray(value) ? value : [])

const decode = (value: unknown): Seen => {
  const fields = new Map(typeof value === "object" && value !== null ? Object.entries(value) : [])
  return {
    jobs: list(fields.get("jobs")),
    keys: list(fields.get("keys")),
    evidence: list(fields.get("evidence")),
    attempts: list(fields.get("attempts")),
    leases: list(fields.get("leases"))
  }
}

const isMoved = (value: unknown): value is { readonly mark: unknown; readonly minutes: number } =>
  typeof value === "object" && value !== null && "mark" in value && "minutes" in value

/** Two lists of rows, the differing ones named. Of two that are the same but for their order there is no difference. */
const sameRows = (what: string, engine: ReadonlyArray<unknown>, model: ReadonlyArray<unknown>, sorted = true): void => {
  const text = (rows: ReadonlyArray<unknown>) => {
    const all = rows.map((row) => JSON.stringify(row))
    return sorted ? all.sort() : all
  }
  const [actual, expected] = [text(engine), text(model)]
  if (actual.join() === expected.join()) return
  const lacks = (a: ReadonlyArray<string>, b: ReadonlyArray<string>) => a.filter((row) => !b.includes(row)).join(" ")
  throw new Difference(
    sorted && (lacks(actual, expected) !== "" || lacks(expected, actual) !== "")
      ? `${what}: the engine has ${lacks(actual, expected) || "no such row"}, the model ${lacks(expected, actual) || "no such row"}`
      : `${what}: the engine has ${actual.join(" ")}, the model ${expected.join(" ")}`
  )
}
