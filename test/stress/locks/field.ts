/**
 * What two sessions meet in: a few attempts in every state, over two segments, with jobs and keys around them. The database is
 * stretched: a trigger pauses, now and then, before a row is written, so that what is one statement elsewhere is a series of
 * steps here, between which another session comes.
 */
import { Effect, Schema } from "effect"
import type { PgFault, Row, Session } from "../../pg/database.js"
import { type Attempt, attemptsOf, bigints, column } from "../../pg/engine.js"
import type { Random } from "../random.js"

const ring = 4

const tables = [
  ...Array.from({ length: ring }, (_, n) => [`closures_${n}`, `ready_entries_${n}`, `ready_tombstones_${n}`]).flat(),
  ...["attempt_state", "leases", "lease_closures", "deferred_jobs", "terminal_jobs", "dlq_entries", "unique_claims"],
  ...["spilled_entries", "spill_heads", "segments", "queues"]
]

/** To be installed beside the schema: the pauses, the way back to an empty storage, and the making of a field. */
export const fieldText = `
create schema stretch;
-- Transactions that came to their first write. Whoever comes to it waits a little for the others: from there on they go together.
create sequence stretch.arrivals cache 1;
create function stretch.pause() returns trigger language plpgsql as $$
declare
  v_expected bigint := nullif(current_setting('stretch.expected', true), '');
  v_until    timestamptz;
  v_arrived  bigint;
begin
  if v_expected is null then
    return coalesce(new, old);
  end if;
  if current_setting('stretch.arrived', true) is distinct from v_expected::text then
    perform set_config('stretch.arrived', v_expected::text, true);
    perform nextval('stretch.arrivals');
    v_until := clock_timestamp() + interval '30 ms';
    loop
      select last_value into v_arrived from stretch.arrivals;
      exit when v_arrived >= v_expected or clock_timestamp() > v_until;
      perform pg_sleep(0.001);
    end loop;
  end if;
  perform pg_sleep(random() * current_setting('stretch.pace')::float8);
  return coalesce(new, old);
end $$;
${tables
  .map(
    (table) =>
      `create trigger stretch before insert or update or delete on awa.${table} for each row execute function stretch.pause();`
  )
  .join("\n")}
create table stretch.segments as table awa.segments;
create table stretch.attempts (claimed awa.claimed_attempt, callback_id uuid);

create function stretch.empty() returns void language plpgsql as $$
declare
  v_table regclass;
begin
  for v_table in
    select c.oid from pg_class c where c.relnamespace = 'awa'::regnamespace and c.relkind = 'r' and c.relname <> 'meta'
  loop
    execute format('truncate %s', v_table);
  end loop;
  insert into awa.segments table stretch.segments;
  perform setval('awa.segment_cursor', (select ring_size from awa.meta));
end $$;

-- $1: jobs with unique keys, whose attempts are left in the ring; $2: jobs whose attempts get callbacks, and so leases.
create procedure stretch.attempts_of(p_ring integer, p_leased integer, p_key text) language plpgsql as $$
declare
  v_one  record;
  v_ids  bigint[];
begin
  select array_agg(i.job_id) into v_ids from awa.insert_jobs((
    select jsonb_agg(jsonb_build_object('kind', 'k', 'queue', 'q', 'args', n, 'opts', jsonb_build_object(
      'max_attempts', 1 + n % 3, 'notify', false,
      'unique', case when n % 2 = 0 then jsonb_build_object('key', p_key || n) end)))
    from generate_series(1, p_ring + p_leased) n)) i;
  commit;
  insert into stretch.attempts select c from awa.claim('q', 500, 1) c;
  delete from stretch.attempts a where (a.claimed).job_id is null or not (a.claimed).job_id = any (v_ids);
  commit;
  for v_one in select (a.claimed).* from stretch.attempts a where (a.claimed).job_id = any (v_ids[p_ring + 1:]) loop
    update stretch.attempts a
    set callback_id = (select r.callback_id from awa.register_callback(
      v_one.claim_slot, v_one.batch_id, v_one.batch_index, v_one.job_id, v_one.run_lease, v_one.receipt_id, '1 hour') r)
    where (a.claimed).job_id = v_one.job_id;
    commit;
  end loop;
end $$;

create procedure stretch.turn() language plpgsql as $$
begin
  perform nextval('awa.entry_seq') from generate_series(1, 64);
  perform awa.rotate('0', 1);
  commit;
  perform awa.rotate('0', 1);
  commit;
end $$;

create procedure stretch.field(p_turn boolean, p_key text) language plpgsql as $$
begin
  delete from stretch.attempts;
  perform awa.resume_queue('q');
  commit;
  call stretch.attempts_of(2, 2, p_key || 'a');
  if p_turn then
    call stretch.turn();
  end if;
  call stretch.attempts_of(3, 2, p_key || 'b');
  -- some were beaten for, one waits, one is parked
  perform awa.heartbeat(array_agg((c).claim_slot), array_agg((c).batch_id), array_agg((c).batch_index), array_agg((c).job_id),
    array_agg((c).run_lease), array_agg((c).receipt_id), '{}')
  from (select a.claimed as c from stretch.attempts a where (a.claimed).job_id % 3 > 0) a;
  commit;
  perform case when (a.claimed).job_id % 2 = 0
    then (select w.answer from awa.wait_callback((a.claimed).claim_slot, (a.claimed).batch_id, (a.claimed).batch_index,
            (a.claimed).job_id, (a.claimed).run_lease, (a.claimed).receipt_id, a.callback_id) w)
    else awa.park_attempt((a.claimed).claim_slot, (a.claimed).batch_id, (a.claimed).batch_index,
            (a.claimed).job_id, (a.claimed).run_lease, (a.claimed).receipt_id, a.callback_id, null) end
  from stretch.attempts a where a.callback_id is not null order by (a.claimed).job_id desc limit 2;
  commit;
end $$;`

/** A field, and what of it a path may name. */
export interface Field {
  readonly attempts: ReadonlyArray<Attempt>
  /** Their callbacks, where they have one. */
  readonly callbacks: ReadonlyMap<bigint, string>
  /** Jobs that no claim has taken: in the ring, in deferred_jobs, and ended ones. */
  readonly others: ReadonlyArray<bigint>
  /** What the unique keys of the field begin with. */
  readonly key: string
}

const isString = Schema.is(Schema.String)

const callbacksOf = (rows: ReadonlyArray<Row>): ReadonlyMap<bigint, string> =>
  new Map(
    rows.flatMap(({ callback_id, job_id }) =>
      isString(callback_id) ? bigints([job_id]).map((id) => [id, callback_id] as const) : []
    )
  )

const job = (args: unknown, opts: Readonly<Record<string, unknown>>) => ({
  kind: "k",
  queue: "q",
  args,
  opts: { notify: false, ...opts }
})

/** A new field; what an earlier one left behind is still there, until `stretch.empty` is called. */
export const makeField = (session: Session, random: Random, key: string): Effect.Effect<Field, PgFault> =>
  Effect.gen(function* () {
    yield* session.script(`call stretch.field(${random.chance(0.5)}, '${key}')`)
    yield* session.script(`select awa.${random.chance(0.3) ? "disable" : "enable"}_caller_owned('q')`)
    const rows = yield* session.rows("select (claimed).*, callback_id from stretch.attempts order by (claimed).job_id")
    const unique = (name: string) => ({ key: key + name, on_conflict: "replace" })
    const others = yield* session.rows("select job_id from awa.insert_jobs($1::text::jsonb)", [
      JSON.stringify([
        ...[1, 2].map((n) => job(n, { priority: n })),
        ...[1, 2, 3].map((n) => job(n, { delay_ms: 1, unique: unique(`d${n}`) })),
        job(0, { delay_ms: 1, unique: { key: `${key}x`, window_ms: 1 } })
      ])
    ])
    const [over] = yield* session.rows(
      `insert into awa.terminal_jobs (job_id, queue, priority, state, run_lease, attempt, max_attempts, kind, args, created_at,
         finalized_at, unique_key)
       values (nextval('awa.job_ids'), 'q', 2, 'failed', 1, 1, 1, 'k', '{}', clock_timestamp(), clock_timestamp(),
         awa.unique_key('k', 'q', '0', jsonb_build_object('key', $1::text)))
       returning job_id`,
      [`${key}d1`]
    )
    return {
      attempts: attemptsOf(rows),
      callbacks: callbacksOf(rows),
      others: bigints([...column(others, "job_id"), over?.["job_id"]]),
      key
    }
  })
