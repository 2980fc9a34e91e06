/**
 * What an operator is shown of the storage.
 *
 * @since 0.1.0
 */
import type * as Duration from "effect/Duration"

/**
 * One segment of the ring. Ages are by the server's clock.
 *
 * @since 0.1.0
 * @category models
 */
export interface Segment {
  readonly slot: number
  readonly generation: bigint
  /** `open`: takes new jobs, `sealed`: only claims, `drained`: history, `free`: empty. */
  readonly state: "free" | "open" | "sealed" | "drained"
  /** Whether new jobs go here. */
  readonly current: boolean
  /** Since when it takes, or took, jobs. */
  readonly opened: Duration.Duration | undefined
  readonly sealed: Duration.Duration | undefined
  readonly drained: Duration.Duration | undefined
  /** Its tables with their indexes, in bytes. */
  readonly bytes: bigint
}

/**
 * @since 0.1.0
 * @category models
 */
export interface StorageStatus {
  readonly schema: string
  /**
   * - `ours`: the installation belongs to this database
   * - `copy`: a copy, which the first runtime will adopt
   * - `refused`: no runtime starts here, for the reason given in `fault`; `Storage.rebase` mends it
   */
  readonly database: "ours" | "copy" | "refused"
  readonly fault: string | undefined
  readonly segments: ReadonlyArray<Segment>
  /** How many segments can be opened before the ring is full. */
  readonly freeSegments: number
  /** How far back completed jobs can be read: the age of the oldest segment that has not been pruned. */
  readonly historyReach: Duration.Duration | undefined
  /** What the settings of the runtimes that beat in the last five minutes promise; undefined when there is none. */
  readonly retention: Retention | undefined
  /** Who or what keeps the oldest segment in the ring. */
  readonly blockers: ReadonlyArray<Blocker>
}

/**
 * For how long the past can be read. Of several runtimes the least counts, for any of them may be the one that removes.
 *
 * @since 0.1.0
 * @category models
 */
export interface Retention {
  readonly runtimes: number
  /** Completed jobs are readable for at least so long. */
  readonly completedHistory: Duration.Duration
  /** And for about so long when segments are rotated by age: the whole ring but the segment that is free next. */
  readonly ringSpan: Duration.Duration
  /** Failed, discarded and cancelled jobs. */
  readonly terminal: Duration.Duration
  readonly deadLetter: Duration.Duration
}

/**
 * What keeps the oldest segment from being drained or pruned.
 *
 * - `writer`: a transaction that enqueued there is open (`pid`, or `gid` when it is prepared)
 * - `unclaimed`: a lane has entries that nobody claimed
 * - `running`: attempts are open
 * - `finalization`: a transaction that ends an attempt there is open (`pid`, or `gid` when it is prepared)
 * - `history`: completed history is younger than its minimum
 * - `lock`: a session holds a lock on the segment's tables
 *
 * @since 0.1.0
 * @category models
 */
export interface Blocker {
  readonly segment: number
  readonly reason: "writer" | "unclaimed" | "running" | "finalization" | "history" | "lock"
  readonly queue: string | undefined
  readonly priority: number | undefined
  readonly pid: number | undefined
  readonly gid: string | undefined
  readonly age: Duration.Duration | undefined
  readonly detail: string
}

/**
 * What a rebase did.
 *
 * @since 0.1.0
 * @category models
 */
export interface RebaseReport {
  /** Why it was needed. */
  readonly reason: string
  /** Attempts that were open, and whose jobs run again first; none of them counts as an attempt. */
  readonly released: number
  /** How many of those had left the ring. */
  readonly releasedLeases: number
  /** Parked attempts, which go on waiting for their callbacks. */
  readonly parked: number
  /** Unclaimed jobs that were in the heads of their lanes. */
  readonly keptInHead: number
  /** Unclaimed jobs that were in the ring. */
  readonly moved: number
  /** The segment that takes new jobs now. */
  readonly segment: number
  /** The segments that are kept as history. */
  readonly drainedSegments: number
  /** The segment whose history had to go, none being free. */
  readonly truncatedSegment: number | undefined
  /** Tokens of the original do not match this one (contract C-34). */
  readonly installationId: string
}
