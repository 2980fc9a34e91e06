-- Claim: one call takes the next entries of a queue, lane by lane, and records in one appended row the cursor, the receipts
-- and what was taken.

-- One branch per segment. Reads a lane in (xid, seq) order behind its cursor. The caller holds the lane's lock; the
-- snapshot is taken here, in a statement of its own, after that lock.
{{#segments}}
create or replace function {{schema}}.claim_{{segment}}(
  p_queue text, p_priority smallint, p_limit integer, p_runtime_id bigint, p_claim_slot integer, p_deadline interval)
returns setof {{schema}}.claimed_attempt
language plpgsql volatile as $$
declare
  v_snapshot  pg_snapshot;
  v_last      record;
  v_cur_xid   xid8 := '0';
  v_cur_seq   bigint := 0;
  v_pend_x    xid8[] := '{}';
  v_pend_s    bigint[] := '{}';
  v_next_x    xid8[] := '{}';
  v_next_s    bigint[] := '{}';
  v_x         xid8[] := '{}';
  v_s         bigint[] := '{}';
  v_j         bigint[] := '{}';
  v_l         bigint[] := '{}';
  f_x         xid8[];
  f_s         bigint[];
  f_j         bigint[];
  f_l         bigint[];
  v_have      integer := 0;
  v_batch     bigint;
  v_base      bigint;
  v_claimed   timestamptz;
begin
  select b.cursor_xid, b.cursor_seq, b.pending_xids, b.pending_seqs into v_last
  from {{schema}}.claim_batches_{{segment}} b
  where b.queue = p_queue and b.priority = p_priority
  order by b.batch_id desc limit 1;
  if found then
    v_cur_xid := v_last.cursor_xid;
    v_cur_seq := v_last.cursor_seq;
    v_pend_x := v_last.pending_xids;
    v_pend_s := v_last.pending_seqs;
  end if;
  v_snapshot := pg_current_snapshot();

  -- Transactions that had not ended when the cursor passed them: read those that have ended since.
  for k in 1 .. cardinality(v_pend_x) loop
    if v_have >= p_limit or not pg_visible_in_snapshot(v_pend_x[k], v_snapshot) then
      v_next_x := v_next_x || v_pend_x[k];
      v_next_s := v_next_s || v_pend_s[k];
      continue;
    end if;
    select coalesce(array_agg(e.xid order by e.seq), '{}'), coalesce(array_agg(e.seq order by e.seq), '{}'),
           coalesce(array_agg(e.job_id order by e.seq), '{}'), coalesce(array_agg(e.run_lease + 1 order by e.seq), '{}')
    into f_x, f_s, f_j, f_l
    from (select r.xid, r.seq, r.job_id, r.run_lease from {{schema}}.ready_entries_{{segment}} r
          where r.queue = p_queue and r.priority = p_priority and r.xid = v_pend_x[k] and r.seq > v_pend_s[k]
          order by r.seq limit p_limit - v_have) e;
    v_x := v_x || f_x;  v_s := v_s || f_s;  v_j := v_j || f_j;  v_l := v_l || f_l;
    v_have := v_have + cardinality(f_s);
    if v_have >= p_limit then  -- not read to the end: keep it, from here
      v_next_x := v_next_x || v_pend_x[k];
      v_next_s := v_next_s || coalesce(f_s[cardinality(f_s)], v_pend_s[k]);
    end if;
  end loop;

  -- Then forward from the cursor, range by range between the transactions in progress: their uncommitted entries are jumped
  -- over by one index probe instead of being walked again by every poll. One statement: the ranges are as many as the open
  -- transactions of the whole cluster. They come in order, so that the limit ends at the first entries.
  if v_have < p_limit then
    select array_agg(e.xid order by e.xid, e.seq), array_agg(e.seq order by e.xid, e.seq),
           array_agg(e.job_id order by e.xid, e.seq), array_agg(e.run_lease + 1 order by e.xid, e.seq)
    into f_x, f_s, f_j, f_l
    from (
      select r.xid, r.seq, r.job_id, r.run_lease
      from (
        select s.x as high, lag(s.x, 1, v_cur_xid) over in_order as low,
               case when row_number() over in_order = 1 then v_cur_seq else 9223372036854775807 end as low_seq
        from (select pg_snapshot_xip(v_snapshot) as x union all select pg_snapshot_xmax(v_snapshot)) s
        where s.x > v_cur_xid
        window in_order as (order by s.x)
        offset 0) g
      cross join lateral (
        select e.xid, e.seq, e.job_id, e.run_lease from {{schema}}.ready_entries_{{segment}} e
        where e.queue = p_queue and e.priority = p_priority and (e.xid, e.seq) > (g.low, g.low_seq) and e.xid < g.high
        order by e.xid, e.seq limit p_limit - v_have) r
      limit p_limit - v_have) e;
    if f_s is not null then
      v_x := v_x || f_x;  v_s := v_s || f_s;  v_j := v_j || f_j;  v_l := v_l || f_l;
      v_have := v_have + cardinality(f_s);
      v_cur_xid := f_x[cardinality(f_x)];
      v_cur_seq := f_s[cardinality(f_s)];
    end if;
    -- Whatever is in progress below the cursor may still commit entries behind it. This transaction's own id, drawn in an
    -- earlier lane of the same call, is in no snapshot's list, and it may enqueue after its claim.
    select v_next_x || coalesce(array_agg(s.x order by s.x), '{}'), v_next_s || coalesce(array_agg(0::bigint), '{}')
    into v_next_x, v_next_s
    from (select pg_snapshot_xip(v_snapshot) union all select pg_current_xact_id_if_assigned()) as s(x)
    where s.x < v_cur_xid and not s.x = any (v_next_x);
  end if;
  if v_have = 0 then
    return;
  end if;

  v_batch := nextval({{schema_text batch_seq}});
  -- the last 16 hex digits of a version 4 uuid: its two fixed variant bits fall to the mask, 62 random bits remain
  v_base := ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 17, 16))::bit(64)::bigint & 4611686018427387903;
  v_claimed := clock_timestamp();
  insert into {{schema}}.claim_batches_{{segment}}
    (batch_id, queue, priority, receipt_base, claimed_at, deadline_at, runtime_id, n, cursor_xid, cursor_seq,
     pending_xids, pending_seqs, job_ids, run_leases, xids, seqs)
  values (v_batch, p_queue, p_priority, v_base, v_claimed, v_claimed + p_deadline, p_runtime_id, v_have, v_cur_xid, v_cur_seq,
     v_next_x, v_next_s, v_j, v_l, v_x, v_s);
  return query
    select r.job_id, r.run_lease + 1, p_claim_slot | {{segment}}, v_base + u.i, v_batch, u.i::integer, r.attempt + 1,
           r.max_attempts, r.priority, r.kind, r.args, r.progress, v_claimed + p_deadline, false
    from unnest(v_x, v_s) with ordinality as u(x, s, i)
    -- OFFSET 0 keeps this a probe per key: flattened, a plan made while the segment was empty scans it for every key
    cross join lateral (
      select e.* from {{schema}}.ready_entries_{{segment}} e
      where e.queue = p_queue and e.priority = p_priority and e.xid = u.x and e.seq = u.s offset 0) r;
end $$;
{{/segments}}

-- Takes up to p_limit jobs of a queue, highest priority (lowest number) first. A lane that another claimer holds at this
-- moment is answered by one row with lane_busy: busy is not empty, and a caller that took it for empty would sleep on work.
create or replace function {{schema}}.claim(p_queue text, p_limit integer, p_runtime_id bigint)
returns setof {{schema}}.claimed_attempt
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set max_parallel_workers_per_gather = 0
as $$
declare
  v_settings  record;
  v_slot      smallint;
  v_claim     integer;
  v_rows      integer;
  v_left      integer := p_limit;
  v_busy      boolean := false;
begin
  perform {{schema}}.require_read_committed();
  if pg_current_xact_id_if_assigned() is not null then
    raise exception using errcode = '25001', message = 'claim must be the first statement of its transaction that writes',
      detail = 'The transaction''s own id is in no list of transactions in progress, so its own uncommitted entries would count as visible.';
  end if;
  if p_limit is null or p_limit < 1 or p_limit > 10000 then
    raise exception using errcode = '22023', message = 'limit: expected an integer from 1 to 10000';
  end if;
  -- A claim that a crash can undo hands the same attempt out twice, so it is durable whatever the session says. A SET
  -- clause would not do: it ends before COMMIT.
  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  select m.fingerprint, q.paused, q.attempt_deadline into v_settings
  from {{schema}}.meta m left join {{schema}}.queues q on q.queue = p_queue;
  if v_settings.paused then
    return;
  end if;
  v_claim := (v_settings.fingerprint << 12) | (1 << 8);

  for v_priority in 1 .. 4 loop
    if not pg_try_advisory_xact_lock(hashtextextended({{key lane}} || v_priority || '/' || p_queue, 0)) then
      v_busy := true;
      continue;
    end if;
    for v_slot in select s.slot from {{schema}}.segments s where s.state in ('open', 'sealed') order by s.generation loop
      case v_slot
        {{#segments}}
        when {{segment}} then
          return query select * from {{schema}}.claim_{{segment}}(p_queue, v_priority::smallint, v_left, p_runtime_id, v_claim, v_settings.attempt_deadline);
        {{/segments}}
      end case;
      get diagnostics v_rows = row_count;
      v_left := v_left - v_rows;
      exit when v_left <= 0;
    end loop;
    exit when v_left <= 0;
  end loop;
  if v_busy and v_left > 0 then
    return query select null::bigint, null::bigint, null::integer, null::bigint, null::bigint, null::integer, null::integer,
      null::integer, null::smallint, null::text, null::jsonb, null::jsonb, null::timestamptz, true;
  end if;
end $$;
