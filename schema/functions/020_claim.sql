-- Claim: one call takes the next entries of a queue and records in one appended row per lane the cursor, the receipts and
-- what was taken.

-- Reads on in a lane of one segment, in (xid, seq) order behind its cursor, and answers what is to be taken and where the
-- cursor is then. Nothing is written. The caller holds the lane's lock; the snapshot is taken here, in a statement of its
-- own, after that lock. With p_until it stops, after p_quantum entries, at the first one that became runnable later: another
-- lane is next. Nothing is taken of a transaction at or above p_below: it began after the caller looked at older segments, where
-- something that committed before it may have come since.
-- A lane's last batch is the first row at or after (queue, priority) in the order of the lane's index: with equality instead, the
-- order would be that of the batch's id, and a plan made when most batches are of one lane walks all of them for an empty lane.
-- Entries with a tombstone are passed and not taken, in ever longer steps, and so many at most: o_more says that it was ended by
-- that. A cursor that a timeout rolled back would come by the same ones in every claim.
{{#segments}}
create or replace function {{schema}}.read_lane_{{segment}}(
  p_queue text, p_priority smallint, p_limit integer, p_until timestamptz, p_quantum integer, p_below xid8,
  out o_moved boolean, out o_cursor_xid xid8, out o_cursor_seq bigint, out o_pending_xids xid8[], out o_pending_seqs bigint[],
  out o_rows tid[], out o_xids xid8[], out o_seqs bigint[], out o_job_ids bigint[], out o_run_leases bigint[], out o_keys bytea[],
  out o_key_count bigint, out o_more boolean)
language plpgsql volatile as $$
declare
  v_snapshot  pg_snapshot;
  v_last      record;
  v_tombs     boolean;
  v_pend_x    xid8[] := '{}';
  v_pend_s    bigint[] := '{}';
  f           record;
  v_have      integer := 0;
  v_step      integer := 0;
  v_dead      bigint := 0;
  v_cut       bigint;
begin
  o_moved := false;
  o_more := false;
  o_cursor_xid := '0';
  o_cursor_seq := 0;
  o_key_count := 0;
  o_pending_xids := '{}';  o_pending_seqs := '{}';
  o_rows := '{}';  o_xids := '{}';  o_seqs := '{}';  o_job_ids := '{}';  o_run_leases := '{}';  o_keys := '{}';
  select b.cursor_xid, b.cursor_seq, b.pending_xids, b.pending_seqs into v_last
  from (
    select b.queue, b.priority, b.cursor_xid, b.cursor_seq, b.pending_xids, b.pending_seqs from {{schema}}.claim_batches_{{segment}} b
    where (b.queue, b.priority) >= (p_queue, p_priority) order by b.queue, b.priority, b.batch_id desc limit 1) b
  where b.queue = p_queue and b.priority = p_priority;
  if found then
    o_cursor_xid := v_last.cursor_xid;
    o_cursor_seq := v_last.cursor_seq;
    v_pend_x := v_last.pending_xids;
    v_pend_s := v_last.pending_seqs;
  end if;
  v_snapshot := pg_current_snapshot();
  v_tombs := exists (select from {{schema}}.ready_tombstones_{{segment}} t where t.queue = p_queue and t.priority = p_priority);

  -- Transactions that had not ended when the cursor passed them: read those that have ended since.
  for k in 1 .. cardinality(v_pend_x) loop
    if v_have >= p_limit or o_more or not pg_visible_in_snapshot(v_pend_x[k], v_snapshot) then
      o_pending_xids := o_pending_xids || v_pend_x[k];
      o_pending_seqs := o_pending_seqs || v_pend_s[k];
      continue;
    end if;
    loop
      v_step := greatest(p_limit - v_have, v_step);
      select count(*) as looked, max(e.seq) as last_seq, count(e.unique_key) filter (where e.alive) as keys,
             coalesce(array_agg(e.ctid order by e.seq) filter (where e.alive), '{}') as r,
             coalesce(array_agg(e.xid order by e.seq) filter (where e.alive), '{}') as x,
             coalesce(array_agg(e.seq order by e.seq) filter (where e.alive), '{}') as s,
             coalesce(array_agg(e.job_id order by e.seq) filter (where e.alive), '{}') as j,
             coalesce(array_agg(e.run_lease + 1 order by e.seq) filter (where e.alive), '{}') as l,
             coalesce(array_agg(e.unique_key order by e.seq) filter (where e.alive), '{}') as u
      into f
      from (
        select a.*, count(*) filter (where a.alive) over (order by a.seq) as turns
        from (
          select r.ctid, r.xid, r.seq, r.job_id, r.run_lease, r.unique_key,
                 not v_tombs or not exists (  -- OFFSET 0 keeps this a probe per entry: all tombstones of the segment would be hashed anew in each step
                   select from {{schema}}.ready_tombstones_{{segment}} t
                   where t.queue = p_queue and t.priority = p_priority and t.xid = r.xid and t.seq = r.seq offset 0) as alive
          from {{schema}}.ready_entries_{{segment}} r
          where r.queue = p_queue and r.priority = p_priority and r.xid = v_pend_x[k] and r.seq > v_pend_s[k]
          order by r.seq limit v_step) a) e
      where e.turns <= p_limit - v_have;
      exit when f.looked = 0;  -- read to the end: the transaction is forgotten
      o_moved := true;
      v_pend_s[k] := f.last_seq;
      o_key_count := o_key_count + f.keys;
      o_rows := o_rows || f.r;  o_xids := o_xids || f.x;  o_seqs := o_seqs || f.s;  o_job_ids := o_job_ids || f.j;
      o_run_leases := o_run_leases || f.l;  o_keys := o_keys || f.u;
      v_have := v_have + cardinality(f.s);
      v_dead := v_dead + f.looked - cardinality(f.s);
      o_more := v_dead >= 10000;
      if v_have >= p_limit or o_more then  -- perhaps not read to the end: keep it, from here
        o_pending_xids := o_pending_xids || v_pend_x[k];
        o_pending_seqs := o_pending_seqs || v_pend_s[k];
        exit;
      end if;
      exit when f.looked < v_step;  -- read to the end as well
      v_step := least(1000, 4 * v_step);
    end loop;
  end loop;

  -- Then forward from the cursor, range by range between the transactions in progress: their uncommitted entries are jumped
  -- over by one index probe instead of being walked again by every poll. One statement: the ranges are as many as the open
  -- transactions of the whole cluster. They come in order, so that the limit ends at the first entries. Where there are tombstones
  -- another step may be needed.
  while v_have < p_limit and not o_more loop
    v_step := case when v_tombs then greatest(p_limit - v_have, v_step) else p_limit - v_have end;
    select count(*) as looked, count(e.unique_key) filter (where e.alive) as keys,
           array_agg(e.ctid) as r, array_agg(e.xid) as x, array_agg(e.seq) as s, array_agg(e.job_id) as j, array_agg(e.run_lease + 1) as l,
           array_agg(e.unique_key) as u, case when v_tombs then array_agg(e.alive) end as alive
    into f
    from (  -- sorted once, here: an ORDER BY in each aggregate would sort as often
      select n.ctid, n.xid, n.seq, n.job_id, n.run_lease, n.unique_key,
             not v_tombs or not exists (
               select from {{schema}}.ready_tombstones_{{segment}} t
               where t.queue = p_queue and t.priority = p_priority and t.xid = n.xid and t.seq = n.seq offset 0) as alive
      from (
       select r.* from (
        select s.x as high, lag(s.x, 1, o_cursor_xid) over in_order as low,
               case when row_number() over in_order = 1 then o_cursor_seq else 9223372036854775807 end as low_seq
        from (select pg_snapshot_xip(v_snapshot) as x union all select pg_snapshot_xmax(v_snapshot)) s
        where s.x > o_cursor_xid
        window in_order as (order by s.x)
        offset 0) g
      cross join lateral (
        select e.ctid, e.xid, e.seq, e.job_id, e.run_lease, e.unique_key from {{schema}}.ready_entries_{{segment}} e
        where e.queue = p_queue and e.priority = p_priority and (e.xid, e.seq) > (g.low, g.low_seq) and e.xid < least(g.high, p_below)
        order by e.xid, e.seq limit v_step) r
       limit v_step) n
      order by n.xid, n.seq) e;
    exit when f.looked = 0;
    v_cut := f.looked;
    if v_tombs then  -- more was read than is wanted
      select coalesce(min(c.i), f.looked) into v_cut
      from (select u.i, count(*) filter (where u.alive) over (order by u.i) as turns from unnest(f.alive) with ordinality as u(alive, i)) c
      where c.turns = p_limit - v_have;
    end if;
    if p_until is not null then
      -- What has a tombstone is no turn of this lane: it is passed whenever it was written, and what stands behind it is looked at.
      select coalesce(min(c.i) - 1, v_cut) into v_cut
      from (select u.x, u.s, u.i, coalesce(u.alive, true) as alive,
                   count(*) filter (where coalesce(u.alive, true)) over (order by u.i) as turns
            from unnest(f.x, f.s, f.alive) with ordinality as u(x, s, alive, i)) c
      cross join lateral (
        select coalesce(e.ready_at, e.created_at) as at from {{schema}}.ready_entries_{{segment}} e
        where e.queue = p_queue and e.priority = p_priority and e.xid = c.x and e.seq = c.s offset 0) r
      where c.i <= v_cut and c.alive and v_have + c.turns > p_quantum and r.at > p_until;
      exit when v_cut = 0;
    end if;
    o_moved := true;
    o_cursor_xid := f.x[v_cut];
    o_cursor_seq := f.s[v_cut];
    o_key_count := o_key_count + f.keys;
    if v_tombs then
      select o_rows || coalesce(array_agg(c.r order by c.i), '{}'), o_xids || coalesce(array_agg(c.x order by c.i), '{}'),
             o_seqs || coalesce(array_agg(c.s order by c.i), '{}'),
             o_job_ids || coalesce(array_agg(c.j order by c.i), '{}'), o_run_leases || coalesce(array_agg(c.l order by c.i), '{}'),
             o_keys || coalesce(array_agg(c.u order by c.i), '{}')
      into o_rows, o_xids, o_seqs, o_job_ids, o_run_leases, o_keys
      from unnest(f.r, f.x, f.s, f.j, f.l, f.u, f.alive) with ordinality as c(r, x, s, j, l, u, alive, i)
      where c.alive and c.i <= v_cut;
    else
      o_rows := o_rows || f.r[:v_cut];  o_xids := o_xids || f.x[:v_cut];  o_seqs := o_seqs || f.s[:v_cut];  o_job_ids := o_job_ids || f.j[:v_cut];
      o_run_leases := o_run_leases || f.l[:v_cut];  o_keys := o_keys || f.u[:v_cut];
    end if;
    v_dead := v_dead + v_cut - (cardinality(o_seqs) - v_have);
    v_have := cardinality(o_seqs);
    exit when v_cut < f.looked or f.looked < v_step;  -- its turn is over, and something was taken; or it was read to its end
    o_more := v_dead >= 10000;
    v_step := least(1000, 4 * v_step);
  end loop;

  -- Whatever is in progress below the cursor may still commit entries behind it. This transaction's own id, drawn in an
  -- earlier lane of the same call, is in no snapshot's list, and it may enqueue after its claim.
  select o_pending_xids || coalesce(array_agg(p.x order by p.x), '{}'), o_pending_seqs || coalesce(array_agg(0::bigint), '{}')
  into o_pending_xids, o_pending_seqs
  from (select pg_snapshot_xip(v_snapshot) union all select pg_current_xact_id_if_assigned()) as p(x)
  where p.x < o_cursor_xid and not p.x = any (o_pending_xids);
end $$;

-- Records what is taken next of a lane in one segment. o_rows are the entries, in the order of their places in the batch: where they
-- are, since nothing moves an entry while it is in the ring, and the caller reads them there instead of looking each one up again.
create or replace function {{schema}}.claim_{{segment}}(
  p_queue text, p_priority smallint, p_limit integer, p_until timestamptz, p_quantum integer, p_below xid8, p_runtime_id bigint,
  p_deadline interval,
  out o_rows tid[], out o_batch_id bigint, out o_receipt_base bigint, out o_deadline_at timestamptz, out o_more boolean)
language plpgsql volatile as $$
declare
  v_read     record;
  v_claimed  timestamptz;
  v_keys     bytea[];
begin
  select * into v_read from {{schema}}.read_lane_{{segment}}(p_queue, p_priority, p_limit, p_until, p_quantum, p_below);
  o_more := v_read.o_more;
  if not v_read.o_moved then
    return;
  end if;
  if v_read.o_key_count > 0 then
    perform {{schema}}.release_unique(v_read.o_keys, v_read.o_job_ids, 1::smallint);
    select array_agg(case when get_byte(k, 0) > 0 then k end order by i) into v_keys
    from unnest(v_read.o_keys) with ordinality as c(k, i) having bool_or(get_byte(k, 0) > 0);
  end if;
  o_rows := v_read.o_rows;
  o_batch_id := nextval({{schema_text batch_seq}});
  -- the last 16 hex digits of a version 4 uuid: its two fixed variant bits fall to the mask, 62 random bits remain
  o_receipt_base := ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 17, 16))::bit(64)::bigint & 4611686018427387903;
  v_claimed := clock_timestamp();
  o_deadline_at := v_claimed + p_deadline;
  insert into {{schema}}.claim_batches_{{segment}}
    (batch_id, queue, priority, receipt_base, claimed_at, deadline_at, runtime_id, n, cursor_xid, cursor_seq,
     pending_xids, pending_seqs, job_ids, run_leases, xids, seqs, unique_keys)
  values (o_batch_id, p_queue, p_priority, o_receipt_base, v_claimed, o_deadline_at, p_runtime_id, cardinality(o_rows),
     v_read.o_cursor_xid, v_read.o_cursor_seq, v_read.o_pending_xids, v_read.o_pending_seqs, v_read.o_job_ids, v_read.o_run_leases,
     v_read.o_xids, v_read.o_seqs, v_keys);
end $$;

-- A claim from a lane's head: the entry is copied into the current segment, which the caller holds, under the lane's negative
-- priority, where the ring's cursor does not come by, and its batch is there too. Its cursor is the position that was read.
create or replace function {{schema}}.claim_spilled_{{segment}}(
  p_queue text, p_priority smallint, p_limit integer, p_from bigint, p_runtime_id bigint, p_claim_slot integer, p_deadline interval)
returns setof {{schema}}.claimed_attempt
language plpgsql volatile as $$
declare
  v_rows     tid[];
  v_xid      xid8;
  v_batch    bigint;
  v_base     bigint;
  v_claimed  timestamptz;
  v_j        bigint[];
  v_l        bigint[];
  v_s        bigint[];
  v_u        bytea[];
  v_keys     bytea[];
begin
  v_rows := array(
    select e.ctid from {{schema}}.spilled_entries e
    where e.queue = p_queue and e.priority = p_priority and e.position > p_from
    order by e.position limit p_limit);
  if cardinality(v_rows) = 0 then
    return;
  end if;
  v_xid := pg_current_xact_id();
  with taken as (
    delete from {{schema}}.spilled_entries e where e.ctid = any (v_rows) returning e.*
  ), copied as (
    insert into {{schema}}.ready_entries_{{segment}}
      (queue, priority, xid, seq, job_id, run_lease, attempt, max_attempts, created_at, kind, args, progress, errors, ready_at,
       unique_key, callback_result)
    select t.queue, -t.priority, v_xid, t.position, t.job_id, t.run_lease, t.attempt, t.max_attempts, t.created_at, t.kind, t.args,
           t.progress, t.errors, t.ready_at, t.unique_key, t.callback_result
    from taken t order by t.position
    returning seq, job_id, run_lease, unique_key
  )
  select array_agg(c.seq order by c.seq), array_agg(c.job_id order by c.seq), array_agg(c.run_lease + 1 order by c.seq),
         array_agg(c.unique_key order by c.seq),
         case when bool_or(get_byte(c.unique_key, 0) > 0)
           then array_agg(case when get_byte(c.unique_key, 0) > 0 then c.unique_key end order by c.seq) end
  into v_s, v_j, v_l, v_u, v_keys
  from copied c;
  if exists (select from unnest(v_u) k where k is not null) then
    perform {{schema}}.release_unique(v_u, v_j, 1::smallint);
  end if;
  v_batch := nextval({{schema_text batch_seq}});
  v_base := ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 17, 16))::bit(64)::bigint & 4611686018427387903;
  v_claimed := clock_timestamp();
  insert into {{schema}}.claim_batches_{{segment}}
    (batch_id, queue, priority, receipt_base, claimed_at, deadline_at, runtime_id, n, cursor_xid, cursor_seq,
     pending_xids, pending_seqs, job_ids, run_leases, xids, seqs, unique_keys)
  values (v_batch, p_queue, -p_priority, v_base, v_claimed, v_claimed + p_deadline, p_runtime_id, cardinality(v_s),
     '0', v_s[cardinality(v_s)], '{}', '{}', v_j, v_l, array_fill(v_xid, array[cardinality(v_s)]), v_s, v_keys);
  return query
    select r.job_id, r.run_lease + 1, p_claim_slot | {{segment}}, v_base + u.i, v_batch, u.i::integer, r.attempt + 1,
           r.max_attempts, p_priority, r.kind, r.args, r.progress, v_claimed + p_deadline, false, r.callback_result, null::integer
    from unnest(v_s) with ordinality as u(s, i)
    cross join lateral (
      select e.* from {{schema}}.ready_entries_{{segment}} e
      where e.queue = p_queue and e.priority = -p_priority and e.xid = v_xid and e.seq = u.s offset 0) r;
end $$;

-- The lanes of a queue that have something to claim in this segment, and since when their first entry could have run. A
-- hint for choosing among lanes: the claim reads again, under the lane's lock.
create or replace function {{schema}}.lanes_{{segment}}(p_queue text, p_lanes integer[], out priority integer, out head_at timestamptz)
returns setof record
language plpgsql volatile as $$
declare
  v_snapshot pg_snapshot := pg_current_snapshot();
begin
  return query
    select p.p, h.at
    from unnest(p_lanes) as p(p)
    left join lateral (
      select b.queue, b.priority, b.cursor_xid, b.cursor_seq, b.pending_xids, b.pending_seqs
      from {{schema}}.claim_batches_{{segment}} b
      where (b.queue, b.priority) >= (p_queue, p.p::smallint) order by b.queue, b.priority, b.batch_id desc limit 1) c
      on c.queue = p_queue and c.priority = p.p
    cross join lateral (
      select s.at from (
        select r.at from unnest(c.pending_xids, c.pending_seqs) as n(x, s)
        cross join lateral (
          select coalesce(e.ready_at, e.created_at) as at from {{schema}}.ready_entries_{{segment}} e
          where e.queue = p_queue and e.priority = p.p::smallint and e.xid = n.x and e.seq > n.s order by e.seq limit 1) r
        where pg_visible_in_snapshot(n.x, v_snapshot)
        union all
        select r.at from (
          select s.x as high, lag(s.x, 1, coalesce(c.cursor_xid, '0'::xid8)) over in_order as low,
                 case when row_number() over in_order = 1 then coalesce(c.cursor_seq, 0) else 9223372036854775807 end as low_seq
          from (select pg_snapshot_xip(v_snapshot) as x union all select pg_snapshot_xmax(v_snapshot)) s
          where s.x > coalesce(c.cursor_xid, '0'::xid8)
          window in_order as (order by s.x)
          offset 0) g
        cross join lateral (
          select coalesce(e.ready_at, e.created_at) as at from {{schema}}.ready_entries_{{segment}} e
          where e.queue = p_queue and e.priority = p.p::smallint and (e.xid, e.seq) > (g.low, g.low_seq) and e.xid < g.high
          order by e.xid, e.seq limit 1) r
      ) s limit 1) h;
end $$;

-- Whether an entry is claimed or moved away: at or below its lane's cursor, and not in what is left of a pending
-- transaction. Exact under the lane's lock. A tombstone is no claim.
create or replace function {{schema}}.is_claimed_{{segment}}(p_queue text, p_priority smallint, p_xid xid8, p_seq bigint) returns boolean
language sql volatile as $$
  select coalesce((
    select (p_xid, p_seq) <= (b.cursor_xid, b.cursor_seq)
       and not exists (select from unnest(b.pending_xids, b.pending_seqs) as n(x, s) where n.x = p_xid and p_seq > n.s)
    from (
      select b.queue, b.priority, b.cursor_xid, b.cursor_seq, b.pending_xids, b.pending_seqs from {{schema}}.claim_batches_{{segment}} b
      where (b.queue, b.priority) >= (p_queue, p_priority) order by b.queue, b.priority, b.batch_id desc limit 1) b
    where b.queue = p_queue and b.priority = p_priority), false)
    or p_priority < 0
$$;

-- The usual claim: one segment is read, one of its lanes has something, nothing of that lane was cancelled or has left the ring, and no
-- transaction that its cursor passed has ended since. A lane has something where there are entries: transactions that it waits for
-- have ended all the time, and most wrote nothing there. Then a look, the lane's lock and one statement do what claim and claim_N do by
-- fifteen, each of which costs the start of a plan. o_lanes is how many lanes may have something, or null where one of them has a head.
-- Where it is one and nothing was taken, another claimer holds it (o_busy), or what was taken for granted did not hold: nothing is
-- written, and it is claimed step by step. Nothing is taken of a transaction that began after the look: it may have come behind one of
-- another lane, which the look did not see. What is taken for granted is read under the lock and in the snapshot that reads the entries, so
-- pending is exactly what that snapshot has in progress below the new cursor; what is pending still is among it, with nothing taken of it.
-- Both statements read between the transactions in progress, as read_lane_N does, in the order of their ids.
create or replace function {{schema}}.claim_alone_{{segment}}(
  p_queue text, p_limit integer, p_runtime_id bigint, p_deadline interval,
  out o_lanes bigint, out o_busy boolean, out o_rows tid[], out o_batch_id bigint, out o_receipt_base bigint, out o_deadline_at timestamptz)
language plpgsql volatile as $$
declare
  v_priority  smallint;
  v_below     xid8;
begin
  o_busy := false;
  with now as materialized (
    select '0'::xid8 || s.xip as low, s.xip || pg_snapshot_xmax(pg_current_snapshot()) as high
    from (select array(select pg_snapshot_xip(pg_current_snapshot())) as xip offset 0) s
  )
  select case when not exists (select from {{schema}}.spill_heads h where h.queue = p_queue) then count(*) end, min(p.p),
         pg_snapshot_xmax(pg_current_snapshot())
  into o_lanes, v_priority, v_below
  from now n cross join unnest('{1,2,3,4}'::smallint[]) as p(p)
  left join lateral (
    select b.queue, b.priority, b.cursor_xid, b.cursor_seq, b.pending_xids, b.pending_seqs from {{schema}}.claim_batches_{{segment}} b
    where (b.queue, b.priority) >= (p_queue, p.p) order by b.queue, b.priority, b.batch_id desc limit 1) l
    on l.queue = p_queue and l.priority = p.p
  where exists (
    select from unnest(l.pending_xids, l.pending_seqs) as w(x, s)
    cross join lateral (
      select from {{schema}}.ready_entries_{{segment}} e
      where e.queue = p_queue and e.priority = p.p and e.xid = w.x and e.seq > w.s limit 1) e
    where not w.x = any (n.low)) or exists (
    select from unnest(n.low, n.high) as g(low, high)
    cross join lateral (
      select from {{schema}}.ready_entries_{{segment}} e
      where e.queue = p_queue and e.priority = p.p and e.xid < g.high and (e.xid, e.seq) > (
        greatest(g.low, l.cursor_xid), case when g.low < l.cursor_xid then l.cursor_seq else 9223372036854775807 end)
      limit 1) e
    where g.high > coalesce(l.cursor_xid, '0'));
  if o_lanes is distinct from 1 then
    return;
  end if;
  if not pg_try_advisory_xact_lock(hashtextextended({{key lane}} || v_priority || '/' || p_queue, 0)) then
    o_busy := true;
    return;
  end if;
  with lane as materialized (
    select coalesce(l.cursor_xid, '0') as xid, coalesce(l.cursor_seq, 0) as seq, coalesce(l.pending_xids, '{}') as pending,
           array(select pg_snapshot_xip(pg_current_snapshot())) as in_progress
    from (select) one left join (
      select b.cursor_xid, b.cursor_seq, b.pending_xids
      from (
        select b.queue, b.priority, b.cursor_xid, b.cursor_seq, b.pending_xids from {{schema}}.claim_batches_{{segment}} b
        where (b.queue, b.priority) >= (p_queue, v_priority) order by b.queue, b.priority, b.batch_id desc limit 1) b
      where b.queue = p_queue and b.priority = v_priority) l on true
    where not exists (select from {{schema}}.ready_tombstones_{{segment}} t where t.queue = p_queue and t.priority = v_priority)
      and not exists (select from {{schema}}.queues q where q.queue = p_queue and q.paused)
      and not exists (select from {{schema}}.spill_heads h where h.queue = p_queue and h.priority = v_priority)
  ), taken as materialized (
    select count(*)::integer as n, count(e.unique_key) as keys, array_agg(e.ctid) as rows, array_agg(e.xid) as xids,
           array_agg(e.seq) as seqs, array_agg(e.job_id) as job_ids, array_agg(e.run_lease + 1) as run_leases
    from (
      select r.*
      from lane l
      cross join lateral unnest('0'::xid8 || l.in_progress, l.in_progress || pg_snapshot_xmax(pg_current_snapshot())) as g(low, high)
      cross join lateral (
        select e.ctid, e.xid, e.seq, e.job_id, e.run_lease, e.unique_key from {{schema}}.ready_entries_{{segment}} e
        where e.queue = p_queue and e.priority = v_priority and e.xid < least(g.high, v_below) and (e.xid, e.seq) > (
          greatest(g.low, l.xid), case when g.low < l.xid then l.seq else 9223372036854775807 end)
        order by e.xid, e.seq limit p_limit) r
      where g.high > l.xid and l.pending <@ l.in_progress
      limit p_limit) e
  ), batch as (
    insert into {{schema}}.claim_batches_{{segment}}
      (batch_id, queue, priority, receipt_base, claimed_at, deadline_at, runtime_id, n, cursor_xid, cursor_seq,
       pending_xids, pending_seqs, job_ids, run_leases, xids, seqs)
    select nextval({{schema_text batch_seq}}), p_queue, v_priority,
           ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 17, 16))::bit(64)::bigint & 4611686018427387903,
           c.at, c.at + p_deadline, p_runtime_id, t.n, t.xids[t.n], t.seqs[t.n],
           p.xids, array_fill(0::bigint, array[cardinality(p.xids)]), t.job_ids, t.run_leases, t.xids, t.seqs
    from taken t
    cross join (select clock_timestamp() as at offset 0) c
    cross join lateral (
      select array(select x from lane l cross join lateral unnest(l.in_progress) x where x < t.xids[t.n] order by x) as xids offset 0) p
    where t.n > 0 and t.keys = 0
    returning batch_id, receipt_base, deadline_at
  )
  select t.rows, b.batch_id, b.receipt_base, b.deadline_at into o_rows, o_batch_id, o_receipt_base, o_deadline_at
  from batch b cross join taken t;
end $$;

-- The position that claims from a lane's head have come to, as far as this segment knows.
create or replace function {{schema}}.spilled_to_{{segment}}(p_queue text, p_priority smallint) returns bigint
language sql volatile as $$
  select b.cursor_seq
  from (
    select b.queue, b.priority, b.cursor_seq from {{schema}}.claim_batches_{{segment}} b
    where (b.queue, b.priority) >= (p_queue, -p_priority) order by b.queue, b.priority, b.batch_id desc limit 1) b
  where b.queue = p_queue and b.priority = -p_priority
$$;

-- How many claims of a queue are younger than p_since: newest first, and no further than that.
create or replace function {{schema}}.claimed_since_{{segment}}(p_queue text, p_since timestamptz, out n bigint, out oldest timestamptz)
language plpgsql volatile as $$
declare
  v_batch record;
begin
  n := 0;
  for v_priority in -4 .. 4 loop
    for v_batch in
      select b.queue, b.priority, b.n, b.claimed_at from {{schema}}.claim_batches_{{segment}} b
      where (b.queue, b.priority) >= (p_queue, v_priority::smallint) order by b.queue, b.priority, b.batch_id desc
    loop
      exit when v_batch.queue <> p_queue or v_batch.priority <> v_priority or v_batch.claimed_at <= p_since;
      continue when v_batch.n = 0;  -- no claim
      n := n + v_batch.n;
      oldest := least(oldest, v_batch.claimed_at);
    end loop;
  end loop;
end $$;
{{/segments}}

-- Everything that a claim may still take of a rate-limited queue; and, when that is nothing, in how many milliseconds it may
-- be more. The claims themselves are the account: no counter is written, and no process has a budget of its own.
create or replace function {{schema}}.rate_left(
  p_queue text, p_limit integer, p_interval interval, out remaining integer, out retry_ms integer)
language plpgsql volatile as $$
declare
  v_now     timestamptz := clock_timestamp();
  v_slot    smallint;
  v_n       bigint;
  v_used    bigint := 0;
  v_at      timestamptz;
  v_oldest  timestamptz;
begin
  for v_slot in select s.slot from {{schema}}.segments s where s.state <> 'free' loop
    case v_slot
      {{#segments}}
      when {{segment}} then select * into v_n, v_at from {{schema}}.claimed_since_{{segment}}(p_queue, v_now - p_interval);
      {{/segments}}
    end case;
    v_used := v_used + v_n;
    v_oldest := least(v_oldest, v_at);
  end loop;
  remaining := greatest(0, p_limit - v_used);
  if remaining = 0 then
    retry_ms := greatest(1, ceil(extract(epoch from v_oldest + p_interval - v_now) * 1000));
  end if;
end $$;

-- Takes up to p_limit jobs of a queue. Among its lanes an entry of priority p counts as if it had become runnable (p - 1)
-- times the queue's aging later: no entry waits behind more than what came before that time, so none starves. Inside a lane
-- the order is FIFO. A lane that another claimer holds at this moment is answered by one row with lane_busy: busy is not
-- empty, and a caller that took it for empty would sleep on work. A queue at its rate limit is answered by one row with
-- retry_ms.
create or replace function {{schema}}.claim(p_queue text, p_limit integer, p_runtime_id bigint)
returns setof {{schema}}.claimed_attempt
language plpgsql volatile security definer
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
  v_settings   record;
  v_slots      smallint[];
  v_masks      integer[];                                                  -- of those: the lanes that it may have, a bit each
  v_bits       integer;
  v_slot       smallint;
  v_claim      integer;
  v_rows       integer;
  v_took       integer;
  v_left       integer := p_limit;
  v_busy       boolean := false;
  v_more       boolean := false;                                           -- behind many tombstones
  v_retry      integer;
  v_rate       integer;                                                    -- what the queue's rate leaves
  v_lanes      integer[] := '{1,2,3,4}';
  v_head_at    timestamptz[] := array_fill(null::timestamptz, array[4]);   -- by lane
  v_first      integer[] := array_fill(null::integer, array[4]);           -- its oldest segment, as a place in v_slots
  v_unseen     integer[];
  v_below      xid8;                                                       -- of transactions that had begun before the look
  v_from       bigint[] := array_fill(null::bigint, array[4]);             -- of a spilled head: claimed up to here
  v_to         bigint[] := array_fill(null::bigint, array[4]);             -- and it ends here
  v_locked     boolean[] := '{false,false,false,false}';
  v_lane       record;
  v_head       record;
  v_again      record;
  v_taken      record;
  v_at         timestamptz;
  v_position   bigint;
  v_p          integer;
  v_until      timestamptz;
  v_second     timestamptz;
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
  select m.fingerprint, q.paused, q.attempt_deadline, coalesce(q.aging, interval '1 minute') as aging, q.rate_limit, q.rate_interval,
         not coalesce(q.caller_owned, true) as gated
  into v_settings
  from {{schema}}.meta m left join {{schema}}.queues q on q.queue = p_queue;
  if v_settings.paused then
    return;
  end if;
  v_claim := (v_settings.fingerprint << 12) | (1 << 8);
  select coalesce(array_agg(s.slot order by s.generation), '{}'),
         array_agg(coalesce((l.lanes ->> p_queue)::integer, case when l.lanes is null then 15 else 0 end) order by s.generation)
  into v_slots, v_masks
  from {{schema}}.segments s
  left join lateral (select h.lanes from {{schema}}.segment_lanes h where h.slot = s.slot offset 0) l on true
  where s.state in ('open', 'sealed');

  if cardinality(v_slots) = 1 and v_settings.rate_limit is null then
    case v_slots[1]
      {{#segments}}
      when {{segment}} then
        select * into v_taken from {{schema}}.claim_alone_{{segment}}(p_queue, p_limit, p_runtime_id, v_settings.attempt_deadline);
        if v_taken.o_batch_id is not null then
          return query
            select e.job_id, e.run_lease + 1, v_claim | {{segment}}, v_taken.o_receipt_base + u.i, v_taken.o_batch_id, u.i::integer,
                   e.attempt + 1, e.max_attempts, e.priority, e.kind, e.args, e.progress, v_taken.o_deadline_at, false,
                   e.callback_result, null::integer
            from unnest(v_taken.o_rows) with ordinality as u(place, i)
            -- OFFSET 0 keeps this a fetch per place
            cross join lateral (select r.* from {{schema}}.ready_entries_{{segment}} r where r.ctid = u.place offset 0) e;
        end if;
      {{/segments}}
    end case;
    v_busy := v_taken.o_busy;
    if v_taken.o_lanes = 0 or v_busy or v_taken.o_batch_id is not null then
      v_left := p_limit - coalesce(cardinality(v_taken.o_rows), 0);
      v_lanes := '{}';
    end if;
  end if;

  if v_settings.rate_limit is not null then
    if not pg_try_advisory_xact_lock(hashtextextended({{key rate}} || p_queue, 0)) then
      v_left := 0;
      v_retry := 5;
    else
      select r.remaining, r.retry_ms into v_left, v_retry
      from {{schema}}.rate_left(p_queue, v_settings.rate_limit, v_settings.rate_interval) r;
      v_rate := v_left;
      v_left := least(v_left, p_limit);
    end if;
  end if;

  while v_left > 0 and cardinality(v_lanes) > 0 loop
    v_below := pg_snapshot_xmax(pg_current_snapshot());
    -- What the lanes have: of the segments the oldest first, and before them their heads. The heads are looked at last: what
    -- leaves the ring in between is in one of them.
    foreach v_p in array v_lanes loop
      v_head_at[v_p] := null;
      v_first[v_p] := null;
      v_from[v_p] := null;
      v_to[v_p] := null;
    end loop;
    v_unseen := v_lanes;  -- a lane is looked for until it is found: a backlog may stand in many segments
    for v_at_slot in 1 .. cardinality(v_slots) loop
      exit when cardinality(v_unseen) = 0;
      v_bits := 0;
      foreach v_p in array v_unseen loop
        v_bits := v_bits | (1 << (v_p - 1));
      end loop;
      continue when v_masks[v_at_slot] & v_bits = 0;
      case v_slots[v_at_slot]
        {{#segments}}
        when {{segment}} then
          for v_lane in select l.priority, l.head_at from {{schema}}.lanes_{{segment}}(p_queue, v_unseen) l loop
            v_head_at[v_lane.priority] := v_lane.head_at;
            v_first[v_lane.priority] := v_at_slot;
            v_unseen := array_remove(v_unseen, v_lane.priority);
          end loop;
        {{/segments}}
      end case;
    end loop;
    if exists (select from {{schema}}.spill_heads h where h.queue = p_queue) then
      for v_head in
        select h.priority, h.first_position, h.last_position from {{schema}}.spill_heads h
        where h.queue = p_queue and h.priority = any (v_lanes)
      loop
        v_from[v_head.priority] := v_head.first_position;
        v_to[v_head.priority] := v_head.last_position;
        foreach v_slot in array v_slots loop
          case v_slot
            {{#segments}}
            when {{segment}} then v_position := {{schema}}.spilled_to_{{segment}}(p_queue, v_head.priority);
            {{/segments}}
          end case;
          v_from[v_head.priority] := greatest(v_from[v_head.priority], v_position);
        end loop;
        if v_from[v_head.priority] >= v_head.last_position then
          v_from[v_head.priority] := null;
        else
          select coalesce(e.ready_at, e.created_at) into v_at from {{schema}}.spilled_entries e
          where e.queue = p_queue and e.priority = v_head.priority and e.position > v_from[v_head.priority]
          order by e.position limit 1;
          if found then
            v_head_at[v_head.priority] := v_at;
          else
            v_from[v_head.priority] := null;
          end if;
        end if;
      end loop;
    end if;

    -- The lane whose first entry is the next one, and how far it goes before another lane's.
    select l.p, l.at + (l.p - 1) * v_settings.aging, lead(l.at + (l.p - 1) * v_settings.aging) over in_order
    into v_p, v_at, v_second
    from unnest(v_lanes) as u(p) cross join lateral (select u.p, v_head_at[u.p] as at) l
    where l.at is not null
    window in_order as (order by l.at + (l.p - 1) * v_settings.aging, l.p)
    order by 2, 1 limit 1;
    exit when not found;
    v_until := v_second - (v_p - 1) * v_settings.aging;
    if not v_locked[v_p] then
      if not pg_try_advisory_xact_lock(hashtextextended({{key lane}} || v_p || '/' || p_queue, 0)) then
        v_busy := true;
        v_lanes := array_remove(v_lanes, v_p);
        continue;
      end if;
      v_locked[v_p] := true;
      -- Again, under the lock: whoever paused the queue and then found its lanes free may rely on it; and entries that left the
      -- ring for the lane's head since the look above come before those that are in the ring still.
      select exists (select from {{schema}}.queues q where q.queue = p_queue and q.paused) as paused,
             (select h.last_position from {{schema}}.spill_heads h where h.queue = p_queue and h.priority = v_p) as head_to
      into v_again;
      exit when v_again.paused;
      continue when v_again.head_to is distinct from v_to[v_p];
    end if;

    v_took := 0;
    if v_from[v_p] is not null then
      v_rows := case when v_until is null then v_left else greatest(1, v_left / 4) end;
      case {{schema}}.hold_current_segment()
        {{#segments}}
        when {{segment}} then
          return query select * from {{schema}}.claim_spilled_{{segment}}(p_queue, v_p::smallint, v_rows, v_from[v_p], p_runtime_id,
            v_claim, v_settings.attempt_deadline);
        {{/segments}}
      end case;
      get diagnostics v_took = row_count;
      v_left := v_left - v_took;
    end if;
    if v_took = 0 or v_until is null then
      for v_at_slot in coalesce(v_first[v_p], 1) .. cardinality(v_slots) loop
        exit when v_left <= 0;
        continue when v_masks[v_at_slot] & (1 << (v_p - 1)) = 0;
        case v_slots[v_at_slot]
          {{#segments}}
          when {{segment}} then
            select * into v_taken from {{schema}}.claim_{{segment}}(p_queue, v_p::smallint, v_left, v_until, greatest(1, v_left / 4),
              v_below, p_runtime_id, v_settings.attempt_deadline);
            return query
              select e.job_id, e.run_lease + 1, v_claim | {{segment}}, v_taken.o_receipt_base + u.i, v_taken.o_batch_id, u.i::integer,
                     e.attempt + 1, e.max_attempts, e.priority, e.kind, e.args, e.progress, v_taken.o_deadline_at, false,
                     e.callback_result, null::integer
              from unnest(v_taken.o_rows) with ordinality as u(place, i)
              -- OFFSET 0 keeps this a fetch per place
              cross join lateral (select r.* from {{schema}}.ready_entries_{{segment}} r where r.ctid = u.place offset 0) e;
          {{/segments}}
        end case;
        get diagnostics v_rows = row_count;
        v_left := v_left - v_rows;
        v_took := v_took + v_rows;
        v_more := v_taken.o_more;
        exit when v_more;
        -- it may have left something for another lane's turn: the next segment comes after that
        exit when v_until is not null and v_took > 0;
      end loop;
    end if;
    if v_more then  -- what was passed so far is to be committed
      v_busy := true;
      exit;
    end if;
    exit when v_second is null;  -- the look found nothing in any other lane; what came since brings its own hint
    if v_took = 0 then  -- somebody was faster
      v_lanes := array_remove(v_lanes, v_p);
    end if;
  end loop;
  if v_rate < p_limit and v_left <= 0 and v_retry is null then  -- it was the rate that ended this claim
    select r.retry_ms into v_retry
    from {{schema}}.rate_left(p_queue, v_settings.rate_limit, v_settings.rate_interval) r;
  end if;
  -- A row that is no attempt says the rest: that a lane was busy, when to come again, and in args that caller-owned completion is
  -- off for this queue, to those that have just taken something of it.
  if (v_busy and v_left > 0) or v_retry is not null or (v_settings.gated and v_left < p_limit) then
    return query select null::bigint, null::bigint, null::integer, null::bigint, null::bigint, null::integer, null::integer,
      null::integer, null::smallint, null::text, case when v_settings.gated then jsonb_build_object('gated', true) end, null::jsonb,
      null::timestamptz, v_busy, null::jsonb, v_retry;
  end if;
end $$;
