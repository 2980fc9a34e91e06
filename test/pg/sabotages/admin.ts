/** The sabotages of the operators' verbs and of what they read. */
import type { Sabotage } from "../sabotages.js"

const file = "090_admin.sql"
const views = "080_views.sql"
const test = (path: string) => `test/pg/admin.test.ts > ${path}`

export const adminSabotages: ReadonlyArray<Sabotage> = [
  {
    name: "bury what a claim has taken",
    file,
    from: "where not {{schema}}.is_claimed_{{segment}}(e.queue, e.priority, e.xid, e.seq)",
    to: "where true",
    test: test(
      "cancel > and delete in the same second as claims: every job is taken by one of them, none by both, none by neither"
    )
  },
  {
    name: "bury without the lane's lock",
    file,
    from: "where pg_try_advisory_xact_lock(hashtextextended({{key lane}} || l.lane, 0))",
    to: "where true",
    test: test("cancel > against a claim: whoever holds the lane wins, the other is answered busy")
  },
  {
    name: "cancel without the attempt's lock",
    file,
    from: "then pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || f.job_id || '/' || f.run_lease, 0)) else false end",
    to: "then true else false end",
    test: test("cancel > does not wait for an open transaction that completed the job; commit decides")
  },
  {
    name: "give up all when one flush is in flight",
    file,
    from: "foreach v_one in array v_held loop",
    to: "foreach v_one in array v_held[1:0] loop",
    test: test("cancel > of a job whose flush is in flight is busy for that job alone")
  },
  {
    name: "do not tell the runtime",
    file,
    from: "perform pg_notify({{channel}}, E'\\x01cancel/'",
    to: "perform pg_notify({{channel}}, E'\\x01other/'",
    test: test("cancel > of a running job tells its runtime, and makes what it reports later stale")
  },
  {
    name: "leave parked attempts",
    file,
    from: "h.details, v_closer, true) e), '{}')",
    to: "h.details, v_closer, false) e), '{}')",
    test: test("cancel > of a job that is parked, with a lease: cancelled")
  },
  {
    name: "keep the key of a job that was never claimed",
    file,
    from: "perform {{schema}}.release_unique(u.keys, u.job_ids, 3::smallint)",
    to: "perform {{schema}}.release_unique(u.keys, u.job_ids, 0::smallint)",
    test: test("cancel > of an unclaimed job releases its unique key of preset 0")
  },
  {
    name: "wait for a row that promotion holds",
    file,
    from: "select r.ctid from {{schema}}.deferred_jobs r where r.job_id = f.job_id for update skip locked) d\n    where f.place = 'deferred');",
    to: "select r.ctid from {{schema}}.deferred_jobs r where r.job_id = f.job_id for update nowait) d\n    where f.place = 'deferred');",
    test: test("cancel > of a row that promotion holds is busy")
  },
  {
    name: "delete and keep the key",
    file,
    from: "perform {{schema}}.release_unique(u.keys, u.job_ids, 4::smallint)",
    to: "perform {{schema}}.release_unique(u.keys, u.job_ids, 3::smallint)",
    test: test("cancel > of an unclaimed job keeps its unique key of preset 3")
  },
  {
    name: "leave the old entry when the priority changes",
    file,
    from: "array(select b from {{schema}}.bury_{{segment}}(v_at.queues, v_at.priorities, v_at.xids, v_at.seqs, p_reason) b);",
    to: "array(select b from {{schema}}.bury_{{segment}}(v_at.queues, v_at.priorities, v_at.xids, v_at.seqs, p_reason) b); if p_reason = 'reprioritized' then delete from {{schema}}.ready_tombstones_{{segment}} where reason = p_reason; end if;",
    test: test("reprioritize > keeps one runnable copy, and the order in which the jobs could run")
  },
  {
    name: "reprioritize in the order of the call",
    file,
    from: "order by (u.detail ->> 'ready_at')::timestamptz, (u.detail ->> 'xid')::xid8, (u.detail ->> 'seq')::bigint) j",
    to: "order by u.job_id desc) j",
    test: test("reprioritize > of many in one call keeps their order")
  },
  {
    name: "let a job age anew in its new lane",
    file,
    from: "j.created_at, j.kind, j.args, j.progress, j.errors, (j.detail ->> 'ready_at')::timestamptz, j.unique_key,",
    to: "j.created_at, j.kind, j.args, j.progress, j.errors, clock_timestamp(), j.unique_key,",
    test: test("reprioritize > keeps one runnable copy, and the order in which the jobs could run")
  },
  {
    name: "redrive with the attempts that are used up",
    file,
    from: "'retryable', v_now, j.run_lease, 0, j.max_attempts",
    to: "'retryable', v_now, j.run_lease, j.attempt, j.max_attempts",
    test: test("redrive > gives all attempts back, and keeps the lease's number, the errors and the progress")
  },
  {
    name: "redrive with leases from the start",
    file,
    from: "'retryable', v_now, j.run_lease, 0, j.max_attempts",
    to: "'retryable', v_now, 0, 0, j.max_attempts",
    test: test("redrive > gives all attempts back, and keeps the lease's number, the errors and the progress")
  },
  {
    name: "redrive past another job's key",
    file,
    from: "where u.job_id is distinct from k.job_id;",
    to: "where false;",
    test: test("redrive > of a job whose unique key another one holds leaves it where it is")
  },
  {
    name: "keep the preset of a key whose window is over",
    file,
    from: "set_byte(j.unique_key, 0, u.states)",
    to: "j.unique_key",
    test: test(
      "redrive > takes the key of a preset with a window until the job's end, and keeps one that is still its own"
    )
  },
  {
    name: "let one job that cannot be stored stop the others",
    file,
    from: "if not ({{schema}}.speaks_of_rows(sqlstate) or sqlstate in ('55P03', '40P01')) then",
    to: "if true then",
    test: test("redrive > of one that cannot be stored refuses that one alone")
  },
  {
    name: "begin a filter at the first id again",
    file,
    from: "from {{schema}}.terminal_jobs t\n        where t.job_id > coalesce(p_after, 0)",
    to: "from {{schema}}.terminal_jobs t\n        where t.job_id > 0",
    test: test("redrive > selects by queue, kind and time, and goes on behind those that stay")
  },
  {
    name: "take a claim in flight for nothing running",
    file,
    from: "if cardinality({{schema}}.hold_lanes(array(select p || '/' || p_queue from generate_series(1, 4) p))) < 4",
    to: "if false",
    test: test(
      "a queue > runs while a claim is being made, an attempt is open or a handler waits; a parked attempt has no handler"
    )
  },
  {
    name: "count only what rescue has not looked at",
    file: views,
    from: "where s.claim_slot & 255 = {{segment}} and s.batch_id <= v_from and c.found is null and (p_queue is null or b.queue = p_queue)",
    to: "where false",
    test: test(
      "a queue > runs while a claim is being made, an attempt is open or a handler waits; a parked attempt has no handler"
    )
  },
  {
    name: "find the batch without what was pending",
    file: views,
    from: "             and not exists (select from unnest(b.pending_xids, b.pending_seqs) as n(x, s) where n.x = p_xid and p_seq > n.s) end as claimed",
    to: "             end as claimed",
    test: test("what operators read > finds the attempt of any entry, also of those that were read behind the cursor")
  },
  {
    name: "show what left for a lease twice",
    file: views,
    from: "where b.n > 0 and c.outcome is distinct from 'materialized'",
    to: "where b.n > 0",
    test: test("what operators read > shows an attempt that left the ring once, and what was spilled as available")
  },
  {
    name: "show what a tombstone lies on",
    file: views,
    from: "where t.job_id is null and (a.n is null or a.n > 0)",
    to: "where (a.n is null or a.n > 0)",
    test: test("cancel > of a job that is available: cancelled")
  },
  {
    name: "give back the key of a job that somebody else runs again",
    file: "090_admin.sql",
    from: " and k.job_id = any (v_took || v_more);",
    to: ";",
    test: test("redrive > by two at once leaves the job its key")
  },
  {
    name: "count beyond the cap",
    file: views,
    from: "        limit p_cap + 1) r) f",
    to: "        ) r) f",
    test: test("what operators read > counts up to a cap, says when there is more, and reads no more than that")
  },
  {
    name: "promise history across a gap",
    file: views,
    from: "from used u where u.generation = u.newest - u.i + 1)",
    to: "from used u)",
    test: test("what operators read > shows the ring, and since when everything reads back")
  },
  {
    name: "wait for the key of each job that is redriven",
    file,
    from: "perform set_config('lock_timeout', '5ms', true);",
    to: "perform set_config('lock_timeout', '250ms', true);",
    test: test("redrive > waits once, and not for each, where an open transaction has the keys of many")
  }
]
