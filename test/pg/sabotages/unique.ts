/** Sabotages of unique jobs. */
import type { Sabotage } from "../sabotages.js"

const file = "015_unique.sql"
const suite = "test/pg/unique.test.ts"

export const unique: ReadonlyArray<Sabotage> = [
  {
    name: "take the spelling of a number for its value",
    file,
    from: "then {{schema}}.trim_numbers(p_value)::text else v_text end",
    to: "then v_text else v_text end",
    test: `${suite} > a unique key > is the same for equal JSON however it is spelt, and another one otherwise`
  },
  {
    name: "forget what an array holds when its numbers are trimmed",
    file,
    from: "order by i.n), '[]')",
    to: "order by i.value), '[]')",
    test: `${suite} > a unique key > is the same for equal JSON however it is spelt, and another one otherwise`
  },
  {
    name: "take a payload of null for any payload",
    file,
    from: "then jsonb_build_array(p_args) end",
    to: "then p_args end",
    test: `${suite} > a unique key > is what \`by\` and \`key\` say, and nothing else`
  },
  {
    name: "leave the queue out of a unique key",
    file,
    from: "case when v_by ? 'queue' then p_queue end",
    to: "case when false then p_queue end",
    test: `${suite} > a unique key > is what \`by\` and \`key\` say, and nothing else`
  },
  {
    name: "hold a key beyond the job's end without a bound",
    file,
    from: "when p_unique ->> 'states' in ('successful', 'all') and",
    to: "when false and",
    test: `${suite} > a unique key > names the job, the field and the rule that it breaks, and writes nothing`
  },
  {
    name: "accept any option of a unique key",
    file,
    from: "where k.key not in ('by', 'key', 'states', 'window_ms', 'on_conflict')",
    to: "where false",
    test: `${suite} > a unique key > names the job, the field and the rule that it breaks, and writes nothing`
  },
  {
    name: "store a job in the ring without its unique key",
    file: "010_enqueue.sql",
    from: "select queue, priority, v_xid, seq, job_id, 0, 0, max_attempts, v_now, kind, args, unique_key",
    to: "select queue, priority, v_xid, seq, job_id, 0, 0, max_attempts, v_now, kind, args, null::bytea",
    test: `${suite} > a unique key > is stored with its job, in the ring and aside; a job without one has none`
  },
  {
    name: "store a later job without its unique key",
    file: "010_enqueue.sql",
    from: "max_attempts, kind, args, v_now, v_xid, unique_key",
    to: "max_attempts, kind, args, v_now, v_xid, null::bytea",
    test: `${suite} > a unique key > is stored with its job, in the ring and aside; a job without one has none`
  },
  {
    name: "hold a segment while waiting for a twin",
    file: "010_enqueue.sql",
    from: "  if {{schema}}.check_jobs(p_jobs) then\n",
    to: "  perform {{schema}}.hold_current_segment();\n  if {{schema}}.check_jobs(p_jobs) then\n",
    test: `${suite} > the cost > of waiting is not maintenance's: a segment is drained while an enqueue waits for a twin`
  },
  {
    name: "take whoever has a key for its holder for ever, though it is rolled back",
    file,
    from: "    exit when array_position(v_holder, null) is null;\n",
    to: "    v_holder := array(select coalesce(h, 0) from unnest(v_holder) with ordinality as u(h, n) order by n);\n    exit;\n",
    test: `${suite} > a window > that is over goes to one of several: the others wait and find it, or take it when it was rolled back`
  },
  {
    name: "store a twin nevertheless",
    file: "010_enqueue.sql",
    from: "    where j.answer is null or j.answer = 'inserted'\n",
    to: "",
    test: `${suite} > a twin > of the same call is the first one: ids and answers are as if they came one by one`
  },
  {
    name: "take the last twin of a call for the first",
    file,
    from: "order by substr(j.unique_key, 2), j.ord) f",
    to: "order by substr(j.unique_key, 2), j.ord desc) f",
    test: `${suite} > a twin > of the same call is the first one: ids and answers are as if they came one by one`
  },
  {
    name: "claim unique keys in the order of the call",
    file,
    from: `  select array_agg(f.unique_key order by f.unique_key), array_agg(f.job_id order by f.unique_key),
         array_agg(f.states order by f.unique_key), array_agg(f.hold order by f.unique_key)`,
    to: `  select array_agg(f.unique_key order by f.job_id), array_agg(f.job_id order by f.job_id),
         array_agg(f.states order by f.job_id), array_agg(f.hold order by f.job_id)`,
    test: `${suite} > a twin > of two calls in opposite order waits for the other call, and not each for the other`
  },
  {
    name: "claim a key that has become free behind greater ones",
    file,
    from: " when h.job_id is null then k.before end)",
    to: " end)",
    test: `${suite} > a twin > of a job that ends in the middle of a call is that job, or a new one, and never nothing`
  },
  {
    name: "skip where an error was asked for",
    file,
    from: "->> 'on_conflict' = 'error'",
    to: "->> 'on_conflict' = 'never'",
    test: `${suite} > a twin > with \`error\` is 23505 and names the job that holds the key; nothing of the call is written`
  },
  {
    name: "notify of a twin",
    file: "010_enqueue.sql",
    from: " and (j.answer is null or j.answer = 'inserted')) q;",
    to: ") q;",
    test: `${suite} > a twin > is silent: a queue is notified of what is new in it`
  },
  {
    name: "never let a holder give way",
    file,
    from: "case when not h.expired or h.job_id = k.job_id then h.job_id",
    to: "case when h.job_id is not null then h.job_id",
    test: `${suite} > a window > ends the hold: the next twin is inserted and holds the key, whatever its predecessor does afterwards`
  },
  {
    name: "take one's own key for expired",
    file,
    from: "case when not h.expired or h.job_id = k.job_id then",
    to: "case when not h.expired then",
    test: `${suite} > a window > of one millisecond over many jobs is not taken for somebody else's`
  },
  {
    name: "count a window from the transaction's begin",
    file,
    from: "select k.unique_key, k.job_id, k.states, clock_timestamp() + k.hold",
    to: "select k.unique_key, k.job_id, k.states, now() + k.hold",
    test: `${suite} > a window > counts from the enqueue, by the clock and not by the transaction`
  },
  {
    name: "replace a job without its lock",
    file,
    from: "r.state in ('scheduled', 'retryable') for update) d",
    to: "r.state in ('scheduled', 'retryable')) d",
    test: `${suite} > on_conflict replace > waits for a promotion that holds the row, and then finds the job in the ring`
  },
  {
    name: "replace a snoozed job",
    file,
    from: "r.state in ('scheduled', 'retryable') for update",
    to: "true for update",
    test: `${suite} > on_conflict replace > leaves alone what is not scheduled or retryable, and a job of another kind`
  },
  {
    name: "replace a job of another kind",
    file,
    from: " on t.job_id = j.job_id and t.kind = j.e ->> 'kind'\n",
    to: " on t.job_id = j.job_id\n",
    test: `${suite} > on_conflict replace > leaves alone what is not scheduled or retryable, and a job of another kind`
  },
  {
    name: "replace behind promotion's back",
    file,
    from: "d.run_at), xid = pg_current_xact_id()",
    to: "d.run_at)",
    test: `${suite} > on_conflict replace > gives a scheduled job what the new one says, and keeps what it does not say`
  },
  {
    name: "replace the time that the new job does not name",
    file,
    from: "run_at = coalesce(l.run_at, d.run_at), xid",
    to: "run_at = coalesce(l.run_at, v_now), xid",
    test: `${suite} > on_conflict replace > gives a scheduled job what the new one says, and keeps what it does not say`
  },
  {
    name: "leave a replaced job no attempt",
    file,
    from: "greatest(coalesce((l.e -> 'opts' ->> 'max_attempts')::integer, 25), d.attempt + 1)",
    to: "coalesce((l.e -> 'opts' ->> 'max_attempts')::integer, 25)",
    test: `${suite} > on_conflict replace > gives a retryable job new arguments and keeps its attempts, errors and progress`
  },
  {
    name: "let a replaced job that is due wait",
    file,
    from: "  if v_due is not null then",
    to: "  if false then",
    test: `${suite} > on_conflict replace > that names a time which has come runs at once; told not to notify, at the next tick`
  },
  {
    name: "notify of every replacement",
    file,
    from: "filter (where l.run_at < l.run_before and",
    to: "filter (where true and",
    test: `${suite} > on_conflict replace > that names a time which has come runs at once; told not to notify, at the next tick`
  },
  {
    name: "replace with the first twin of a call",
    file,
    from: "(array_agg(w.e order by w.ord desc))[1] as e",
    to: "(array_agg(w.e order by w.ord))[1] as e",
    test: `${suite} > on_conflict replace > in the same call: the last one counts, and a job that is due is left as it is`
  },
  {
    name: "lock the jobs to replace in the order of the call",
    file,
    from: `  from (select distinct j.job_id
        from rows from (unnest(p_ids, p_answers), jsonb_array_elements(p_jobs)) as j(job_id, answer, e)
        where j.answer = 'existing' and j.e -> 'opts' -> 'unique' ->> 'on_conflict' = 'replace'
        order by j.job_id) i`,
    to: `  from (select j.job_id
        from rows from (unnest(p_ids, p_answers), jsonb_array_elements(p_jobs)) with ordinality as j(job_id, answer, e, ord)
        where j.answer = 'existing' and j.e -> 'opts' -> 'unique' ->> 'on_conflict' = 'replace'
        order by j.ord) i`,
    test: `${suite} > on_conflict replace > of two calls in opposite order waits for the other call`
  },
  {
    name: "give back the key of whoever took it over",
    file: "028_dispose.sql",
    from: "and c.job_id = k.job_id and c.states < p_states",
    to: "and c.states < p_states",
    test: `${suite} > a window > ends the hold: the next twin is inserted and holds the key, whatever its predecessor does afterwards`
  },
  {
    name: "keep the key of a job that failed",
    file: "028_dispose.sql",
    from: "release_unique(v_keys, v_holders, 3::smallint)",
    to: "release_unique(v_keys, v_holders, 2::smallint)",
    test: `${suite} > the presets > keep a twin out of a job that is failed, or not, as they say`
  },
  {
    name: "plan the claim of a key by an empty table's size",
    file,
    from: "out answers text[])\nlanguage plpgsql volatile\nset search_path = pg_catalog, pg_temp\nset plan_cache_mode = force_generic_plan\nset jit = off\nset enable_seqscan = off\n",
    to: "out answers text[])\nlanguage plpgsql volatile\nset search_path = pg_catalog, pg_temp\nset plan_cache_mode = force_generic_plan\nset jit = off\n",
    test: `${suite} > the cost > of a twin does not grow with the keys that are held, nor with the jobs that are deferred`
  },
  {
    name: "plan a replacement by an empty table's size",
    file,
    from: "p_answers text[]) returns text[]\nlanguage plpgsql volatile\nset search_path = pg_catalog, pg_temp\nset plan_cache_mode = force_generic_plan\nset jit = off\nset enable_seqscan = off\n",
    to: "p_answers text[]) returns text[]\nlanguage plpgsql volatile\nset search_path = pg_catalog, pg_temp\nset plan_cache_mode = force_generic_plan\nset jit = off\n",
    test: `${suite} > the cost > of a twin does not grow with the keys that are held, nor with the jobs that are deferred`
  }
]
