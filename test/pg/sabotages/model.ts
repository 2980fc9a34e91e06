/** Sabotages that the model finds, each in another family of functions: what random sequences are there for. */
import type { Sabotage } from "../sabotages.js"

const model =
  "test/model/transitions/transitions.test.ts > random sequences of every transition > find no difference between the engine and a queue in memory"

const of = (name: string, file: string, from: string, to: string): Sabotage => ({ name, file, from, to, test: model })

export const modelSabotages: ReadonlyArray<Sabotage> = [
  of(
    "model: an expired key still binds",
    "015_unique.sql",
    "coalesce(c.expires_at <= clock_timestamp(), false) as expired",
    "false as expired"
  ),
  of(
    "model: read a lane against its order",
    "020_claim.sql",
    "      order by n.xid, n.seq) e;",
    "      order by n.xid, n.seq desc) e;"
  ),
  of(
    "model: a snooze costs an attempt",
    "028_dispose.sql",
    "case when j.outcome in ('snoozed', 'released', 'gated') then j.attempt - 1 else j.attempt end as attempt",
    "case when j.outcome in ('released') then j.attempt - 1 else j.attempt end as attempt"
  ),
  of(
    "model: whoever closed an attempt, the flush is told that it did",
    "030_close.sql",
    "when met.closer = p_closer then 'repeated' else 'stale' end)",
    "when met.closer = p_closer or met.outcome = 'rescued' then 'repeated' else 'stale' end)"
  ),
  of(
    "model: complete_job keeps the unique key",
    "040_complete_job.sql",
    "  if v_claim.unique_key is not null then",
    "  if false then"
  ),
  of(
    "model: evidence does not look at leases that ended",
    "050_evidence.sql",
    "when d.outcome is not null then 'closed'",
    "when d.outcome is not null then 'unknown'"
  ),
  of(
    "model: a lease's progress is lost",
    "065_leases.sql",
    "coalesce(g.progress, e.progress), e.errors, e.unique_key",
    "e.progress, e.errors, e.unique_key"
  ),
  of(
    "model: a callback that timed out is awaited on",
    "066_callbacks.sql",
    "when left_ms = 0 then 'timed_out' else 'waiting' end",
    "else 'waiting' end"
  ),
  of(
    "model: rescue does not see who beats",
    "072_rescue.sql",
    "  v_stale  timestamptz := v_now - p_staleness;\n  v_until",
    "  v_stale  timestamptz := v_now;\n  v_until"
  ),
  of(
    "model: a spill forgets what it read",
    "074_ring.sql",
    "m.kind, m.args, m.progress, m.errors, m.ready_at, m.unique_key, m.callback_result\n    from (",
    "m.kind, m.args, m.progress, m.errors, m.ready_at, null, m.callback_result\n    from ("
  ),
  of(
    "model: a job is reprioritized and runs twice",
    "090_admin.sql",
    "where not {{schema}}.is_claimed_{{segment}}(e.queue, e.priority, e.xid, e.seq)\n      on conflict do nothing",
    "where not {{schema}}.is_claimed_{{segment}}(e.queue, e.priority, e.xid, e.seq) and p_reason <> 'reprioritized'\n      on conflict do nothing"
  ),
  of(
    "model: a job is redriven with the attempts it has lost",
    "090_admin.sql",
    "'retryable', v_now, j.run_lease, 0, j.max_attempts",
    "'retryable', v_now, j.run_lease, j.attempt, j.max_attempts"
  ),
  {
    name: "count a tombstone as a lane's turn",
    file: "020_claim.sql",
    from: "where c.i <= v_cut and c.alive and v_have + c.turns > p_quantum and r.at > p_until;",
    to: "where c.i <= v_cut and v_have + c.i > p_quantum and r.at > p_until;",
    test: "test/pg/lanes.test.ts > priorities > are no reason to leave behind what stands behind a tombstone"
  }
]
