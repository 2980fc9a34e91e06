/**
 * Exit × evidence: what becomes of a caller-owned attempt, for every way in which its handler can end and every state in which
 * its evidence can be (contract C-17, C-19). One table: `Matrix.test.ts` makes every cell of it happen, and schema/README.md
 * shows it (`npm run matrix` writes it there).
 */

/** How a handler can end. */
export interface ExitRow {
  readonly says: string
  /** What it is called in events and counters. */
  readonly class: "success" | "failure" | "defect" | "interrupted"
  /** What an attempt that is open ends as. */
  readonly open: string
  /** The event when the attempt was open, when its completion is durable, and when another outcome won. */
  readonly whenOpen?: string
  readonly whenCompleted?: string
  readonly whenOtherwise?: string
}

const failed = { class: "failure", whenCompleted: "accepted-despite-exit" } as const
const foreign = "foreign-receipt"
const none = "not-a-receipt"

export const exits = {
  "own receipt": {
    says: "success with the attempt's receipt",
    class: "success",
    open: "retried",
    whenOpen: "receipt-without-completion",
    whenOtherwise: "receipt-overruled"
  },
  "rolled-back receipt": {
    says: "success with a receipt of the attempt whose transaction did not commit",
    class: "success",
    open: "retried",
    whenOpen: "receipt-without-completion",
    whenCompleted: "receipt-rolled-back",
    whenOtherwise: "receipt-overruled"
  },
  "foreign receipt": {
    says: "success with the receipt of another attempt",
    class: "success",
    open: "retried",
    whenOpen: foreign,
    whenCompleted: foreign,
    whenOtherwise: foreign
  },
  "no receipt": {
    says: "success with anything else, from untyped code",
    class: "success",
    open: "failed",
    whenOpen: none,
    whenCompleted: none,
    whenOtherwise: none
  },
  failure: { says: "a typed failure", ...failed, open: "retried" },
  "retry-after": { says: "a failure that selects retry-after", ...failed, open: "retried" },
  snooze: { says: "… snooze", ...failed, open: "snoozed" },
  discard: { says: "… discard", ...failed, open: "discarded" },
  cancel: { says: "… cancel", ...failed, open: "cancelled" },
  "dead-letter": { says: "… dead-letter", ...failed, open: "dead_lettered" },
  park: { says: "… park, on a callback of the attempt", ...failed, open: "parked" },
  gated: { says: "`WA006`: caller-owned completion is disabled for the queue", ...failed, open: "gated" },
  timeout: { says: "the handler's timeout", ...failed, open: "retried" },
  defect: { says: "a defect", class: "defect", open: "retried", whenCompleted: "accepted-despite-exit" },
  shutdown: {
    says: "interruption: the worker stops",
    class: "interrupted",
    open: "released",
    whenCompleted: "accepted-despite-exit"
  },
  lost: {
    says: "interruption: its lease was lost",
    class: "interrupted",
    open: "released",
    whenCompleted: "accepted-despite-exit"
  },
  cancelled: {
    says: "interruption: an operator cancelled it",
    class: "interrupted",
    open: "released",
    whenCompleted: "accepted-despite-exit"
  }
} as const satisfies Record<string, ExitRow>

export type Exit = keyof typeof exits
export const exitNames: ReadonlyArray<Exit> = Object.keys(exits).filter((name): name is Exit => name in exits)

/** What decides in the end. */
type End = "completed" | "open" | "otherwise" | "parked"

/** In which state the evidence can be when a handler has ended. */
export interface EvidenceColumn {
  readonly says: string
  readonly end: End
  /** The outcome that won when it is `otherwise`. */
  readonly outcome?: string
  /** What the runtime does until it has its answer. */
  readonly meanwhile?: string
  /** Exits that never meet it. */
  readonly except?: ReadonlyArray<string>
  /** Beyond the budget: the permit is released as `unresolved`, and this is what the watcher finds. */
  readonly later?:
    "accepted-later" | "settled-later" | "parked-later" | "rescue-won" | "closed-otherwise" | "watch-expired"
}

const again = "asked again with backoff, and beaten for"
const busy = "asked again: the settling call finds the attempt's lock held and changes nothing"
const lost = "asked again: the flush's id tells the attempt's own end from another's"

export const evidences = {
  completed: { says: "the attempt's completion", end: "completed" },
  "completed lease": { says: "the same, of an attempt with a lease", end: "completed" },
  open: { says: "open", end: "open" },
  "open lease": { says: "open, with a lease", end: "open" },
  "commits in flight": { says: "a finalization in flight, which commits", end: "completed", meanwhile: busy },
  "rolls back in flight": { says: "a finalization in flight, which rolls back", end: "open", meanwhile: busy },
  "answer lost": { says: "open, and the settling call's answer is lost", end: "open", meanwhile: lost },
  cancelled: { says: "closed by another outcome", end: "otherwise", outcome: "cancelled" },
  superseded: {
    says: "closed, and a newer run lease is running",
    end: "otherwise",
    outcome: "released"
  },
  parked: { says: "parked on a callback", end: "parked" },
  "silent, completed": { says: "no answer for a while, then the completion", end: "completed", meanwhile: again },
  "silent, open": { says: "no answer for a while, then open", end: "open", meanwhile: again },
  "beyond, completed": {
    says: "no answer within the budget, later the completion",
    end: "completed",
    meanwhile: again,
    later: "accepted-later"
  },
  "beyond, open": {
    says: "no answer within the budget, later open",
    end: "open",
    meanwhile: again,
    later: "rescue-won"
  },
  "beyond, cancelled": {
    says: "no answer within the budget, later closed by another outcome",
    end: "otherwise",
    outcome: "cancelled",
    meanwhile: again,
    later: "closed-otherwise"
  },
  "beyond, parked": {
    says: "no answer within the budget, later parked on a callback",
    end: "parked",
    meanwhile: again,
    later: "parked-later"
  },
  "beyond, commits": {
    says: "a finalization in flight for longer than the budget, which commits",
    end: "completed",
    meanwhile: busy,
    later: "accepted-later"
  },
  "beyond, rolls back": {
    says: "a finalization in flight for longer than the budget, which rolls back",
    end: "open",
    meanwhile: busy,
    later: "rescue-won"
  },
  "beyond, answers lost": {
    says: "open, and no answer of the settling call within the budget",
    end: "open",
    except: ["park"], // which is seen in the evidence at once
    meanwhile: lost,
    later: "settled-later"
  },
  pruned: {
    says: "pruned: `unknown` for longer than the budget",
    end: "open",
    meanwhile: again,
    later: "watch-expired"
  }
} as const satisfies Record<string, EvidenceColumn>

export type Evidence = keyof typeof evidences
export const evidenceNames: ReadonlyArray<Evidence> = Object.keys(evidences).filter(
  (name): name is Evidence => name in evidences
)

/** What is to be seen of one cell. */
export interface Cell {
  /** What the permit is released by. */
  readonly how: "accepted" | "closed" | "stale" | "parked" | "unresolved"
  /** What the database says of the attempt in the end. */
  readonly finally: string
  /** The events that are logged and counted, in their order. */
  readonly events: ReadonlyArray<string>
  /** What is counted once more, by the watcher. */
  readonly later: string | undefined
}

const events = (...names: ReadonlyArray<string | undefined>): ReadonlyArray<string> =>
  names.filter((name) => name !== undefined)

/** The cell of an exit and a state of the evidence; undefined where they never meet. */
export const cell = (exitName: Exit, evidenceName: Evidence): Cell | undefined => {
  const exit: ExitRow = exits[exitName]
  const evidence: EvidenceColumn = evidences[evidenceName]
  if (evidence.except?.includes(exitName)) return undefined
  if (evidence.later !== undefined) return beyond(exit, evidence, evidence.later)
  // an attempt that its exit parks reads as parked, whether or not the call's answer came
  const end = evidence.end === "open" && exit.open === "parked" ? "parked" : evidence.end
  switch (end) {
    case "completed":
      return { how: "accepted", finally: "completed", events: events(exit.whenCompleted), later: undefined }
    case "open":
      return { how: "closed", finally: exit.open, events: events(exit.whenOpen), later: undefined }
    case "parked":
      return { how: "parked", finally: "parked", events: events(exit.whenOtherwise), later: undefined }
    case "otherwise":
      return { how: "stale", finally: evidence.outcome ?? "", events: events(exit.whenOtherwise), later: undefined }
  }
}

type Later = NonNullable<EvidenceColumn["later"]>

const beyond = (exit: ExitRow, { end, outcome }: EvidenceColumn, later: Later): Cell => {
  const found: Record<Later, string> = {
    "accepted-later": "completed",
    "settled-later": exit.open,
    "parked-later": end,
    "rescue-won": "rescued",
    "closed-otherwise": outcome ?? "",
    "watch-expired": "unknown"
  }
  // what the completion says against the handler comes before that it was found late
  const told = later === "accepted-later" ? (exit.whenCompleted ?? later) : later
  return { how: "unresolved", finally: found[later], events: ["unresolved", told], later }
}
