/** The sabotages of promotion, rescue, quarantine and retention. */
import type { Sabotage } from "../sabotages.js"

const marks = "test/pg/promoteMark.test.ts > a promotion with a mark >"
const rescueMark = "test/pg/rescue.test.ts > rescue's mark >"
const one = "test/pg/dispose.test.ts > one job of 200 that cannot be stored >"
const sweep = "test/pg/sweep.test.ts > sweep >"

export const promoteSabotages: ReadonlyArray<Sabotage> = [
  {
    name: "forget who was in progress when the mark was made",
    file: "071_promote.sql",
    from: "where pg_visible_in_snapshot(x.xid, pg_current_snapshot()) and (l.run_at",
    to: "where false and (l.run_at",
    test: `${marks} finds what was written by a transaction that its snapshot did not see, whichever way it ended`
  },
  {
    name: "forget who began after the mark was made",
    file: "071_promote.sql",
    from: "where d.xid >= pg_snapshot_xmax(v_seen) and d.xid < pg_snapshot_xmax(pg_current_snapshot()) offset 0",
    to: "where false offset 0",
    test: `${marks} finds a job that was replaced behind it, and a retry that is due at once`
  },
  {
    name: "forget the jobs that somebody held",
    file: "071_promote.sql",
    from: "'skipped', to_jsonb(v_kept));\n  select",
    to: "'skipped', to_jsonb('{}'::bigint[]));\n  select",
    test: `${marks} passes a job that somebody holds, keeps it by its id, and takes it when it is free`
  },
  {
    name: "keep every held job in the mark",
    file: "071_promote.sql",
    from: "if cardinality(v_kept) > c_skipped then",
    to: "if false then",
    test: `${marks} does not move past more held jobs than it can name, and still takes what is free behind them`
  },
  {
    name: "move the mark past what there was no room for",
    file: "071_promote.sql",
    from: "    v_run_at := v_times[v_left];\n    v_job_id := v_ids[v_left];\n",
    to: "    v_run_at := v_now;\n    v_job_id := 9223372036854775807;\n",
    test: `${marks} goes in the order of (run_at, job_id) over all its calls, and says when each job was due`
  },
  {
    name: "promote in any order",
    file: "071_promote.sql",
    from: "from (select * from moved order by run_at, job_id) m",
    to: "from (select * from moved) m",
    test: `${marks} goes in the order of (run_at, job_id) over all its calls, and says when each job was due`
  },
  {
    name: "say that a job was due when it was promoted",
    file: "071_promote.sql",
    from: "m.errors, m.run_at, m.unique_key",
    to: "m.errors, clock_timestamp(), m.unique_key",
    test: `${marks} goes in the order of (run_at, job_id) over all its calls, and says when each job was due`
  },
  {
    name: "begin every promotion at the low end",
    file: "071_promote.sql",
    from: "if p_mark ->> 'origin' = v_origin then",
    to: "if false then",
    test: "test/pg/promoteMark.test.ts > a promotion touches no more blocks after thousands, while an old snapshot keeps every dead row"
  },
  {
    name: "look behind the mark by time",
    file: "071_promote.sql",
    from: "where d.xid >= pg_snapshot_xmax(v_seen) and d.xid < pg_snapshot_xmax(pg_current_snapshot()) offset 0) l",
    to: "where (d.run_at, d.job_id) <= (v_run_at, v_job_id) and d.xid::text::xid8 >= pg_snapshot_xmax(v_seen)) l",
    test: "test/pg/promoteMark.test.ts > a promotion touches no more blocks after thousands, while an old snapshot keeps every dead row"
  },
  {
    name: "believe any mark",
    file: "071_promote.sql",
    from: "if p_mark ->> 'origin' = v_origin then",
    to: "if p_mark ->> 'origin' is not null then",
    test: `${marks} is as if it had none when the mark is of another installation`
  },
  {
    name: "believe a mark that lies ahead of the clock",
    file: "071_promote.sql",
    from: " or v_run_at > v_now\n",
    to: "\n",
    test: `${marks} is as if it had none when the mark lies ahead of the clock`
  },
  {
    name: "believe a mark of transactions that were never begun",
    file: "071_promote.sql",
    from: "or pg_snapshot_xmax(v_seen) > pg_snapshot_xmax(pg_current_snapshot()) then",
    to: "then",
    test: `${marks} is as if it had none when the mark names a transaction that was never begun`
  },
  {
    name: "keep a mark over another table",
    file: "071_promote.sql",
    from: ", pg_relation_filenode({{schema_text deferred_jobs}}::regclass),",
    to: ",",
    test: `${marks} begins again after the table was emptied and filled anew, or the installation was copied`
  },
  {
    name: "subtract from a due time that never comes",
    file: "071_promote.sql",
    from: " and d.run_at < 'infinity' order",
    to: " order",
    test: `${marks} ends at a job that has no due time`
  },
  {
    name: "let one job wedge promotion",
    file: "071_promote.sql",
    from: "    return cardinality(v_queues);\n  exception when others then\n    if not",
    to: "    return cardinality(v_queues);\n  exception when others then\n    if true or not",
    test: `${one} does not wedge promotion, which keeps its order`
  },
  {
    name: "let one job wedge a close",
    file: "028_dispose.sql",
    from: "perform {{schema}}.place_jobs(p_jobs);\n    return;\n  exception when others then\n    if not",
    to: "perform {{schema}}.place_jobs(p_jobs);\n    return;\n  exception when others then\n    if true or not",
    test: `${one} is quarantined when its attempt ends as retried; the others move, and all are closed`
  },
  {
    name: "quarantine what the server could not do just now",
    file: "028_dispose.sql",
    from: "in ('21', '22', '23', '44', 'P0', '54')",
    to: "in ('21', '22', '23', '44', 'P0', '54', '53')",
    test: "test/pg/dispose.test.ts > an error that says nothing of a row is the caller's to try again"
  },
  {
    name: "count a snooze in quarantine",
    file: "028_dispose.sql",
    from: "v_job.attempt - (v_job.outcome in ('snoozed', 'released', 'gated'))::integer, v_job.max_attempts",
    to: "v_job.attempt, v_job.max_attempts",
    test: `${one} is quarantined when its attempt ends as snoozed; the others move, and all are closed`
  },
  {
    name: "keep no dead letters",
    file: "028_dispose.sql",
    from: "or (j.outcome in ('failed', 'retried', 'rescued') and coalesce(q.dead_letter, false)) as dead",
    to: "as dead",
    test: "test/pg/dispose.test.ts > dead letters > are jobs that failed for good in a queue that keeps them"
  },
  {
    name: "send a dead letter to the terminal jobs",
    file: "028_dispose.sql",
    from: "           j.outcome = 'dead_lettered' or (j.outcome in",
    to: "           false or (j.outcome in",
    test: "test/pg/dispose.test.ts > dead letters > are what a handler sends there, whatever the queue's setting and the attempts left"
  },
  {
    name: "pause without end after a rescue",
    file: "028_dispose.sql",
    from: "(least(3600000, (power(2, least(j.attempt - 1, 12)) - 1) * 1000) * (",
    to: "(((power(2, least(j.attempt - 1, 12)) - 1) * 1000) * (",
    test: "test/pg/dispose.test.ts > exhaustion > pauses after a rescue: nothing the first time, then doubling, at most an hour, the second half of it drawn"
  },
  {
    name: "stop rescue's mark at a held attempt",
    file: "072_rescue.sql",
    from: "              and not exists (select from busy b where b.batch_id = u.batch_id and b.idx = u.idx)),",
    to: "           ),",
    test: `${rescueMark} moves over an attempt whose lock is held, which is rescued all the same once it is free`
  },
  {
    name: "pass a held attempt and forget it",
    file: "072_rescue.sql",
    from: "job_id, run_lease, claimed_at)\n    order by u.job_id",
    to: "job_id, run_lease, claimed_at)\n    where false order by u.job_id",
    test: `${rescueMark} moves over an attempt whose lock is held, which is rescued all the same once it is free`
  },
  {
    name: "move rescue's mark past what was cut off",
    file: "072_rescue.sql",
    from: "having count(*) >= p_limit + 1000))",
    to: "having false))",
    test: `${rescueMark} does not pass what a call had no room for, however many of its attempts are held`
  },
  {
    name: "rescue what a batch without attempts lists",
    file: "072_rescue.sql",
    from: " and e.n < c.n\n",
    to: "\n",
    test: `${rescueMark} takes nothing from a batch that has no attempts`
  },
  {
    name: "look at the beaten in every call",
    file: "072_rescue.sql",
    from: "  if p_beaten then\n",
    to: "  if true then\n",
    test: "test/pg/rescue.test.ts > rescue looks at beaten attempts only when it is told to"
  },
  {
    name: "sweep without a bound",
    file: "078_sweep.sql",
    from: "order by t.finalized_at limit p_limit for update",
    to: "order by t.finalized_at for update",
    test: `${sweep} keeps terminal jobs and dead letters for their own time, and goes on share by share`
  },
  {
    name: "keep dead letters as long as terminal jobs",
    file: "078_sweep.sql",
    from: "e.dead_lettered_at < v_now - p_dead_letter\n",
    to: "e.dead_lettered_at < v_now - p_terminal\n",
    test: `${sweep} keeps terminal jobs and dead letters for their own time, and goes on share by share`
  },
  {
    name: "sweep keys that still bind",
    file: "078_sweep.sql",
    from: "where u.expires_at < v_now\n",
    to: "where u.expires_at is not null\n",
    test: `${sweep} removes ended leases with the completed history, and unique keys past their window`
  },
  {
    name: "sweep the state of the living",
    file: "078_sweep.sql",
    from: "  where c.found or b.found is null\n",
    to: "",
    test: `${sweep} removes the state of closed attempts of every segment, and never that of a running one`
  },
  {
    name: "wait in sweep",
    file: "078_sweep.sql",
    from: "order by t.finalized_at limit p_limit for update skip locked);",
    to: "order by t.finalized_at limit p_limit for update);",
    test: `${sweep} never waits, and never decides about what is in quarantine`
  },
  {
    name: "walk what a restore brought on every promotion",
    file: "071_promote.sql",
    from: " and d.xid < pg_snapshot_xmax(pg_current_snapshot()) offset 0) l",
    to: " offset 0) l",
    test: "test/pg/promoteMark.test.ts > a promotion does not walk rows of a restored database, whose ids lie ahead of this server's"
  }
]
