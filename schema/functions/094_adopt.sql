-- Whether this database is the one that the installation was made for, and whether what is stored fits this server. A copy
-- brings numbers of another server with it: transaction ids that a cursor here would compare with its own, and rows whose
-- sequences may have stayed behind (a copy by COPY or by a subscription does not bring them).

-- The greatest numbers in one segment, by one index probe a lane. A cursor is never past the last entry of its lane; copies of
-- spilled entries, under negative priorities, are numbered by their position in the head.
{{#segments}}
create or replace function {{schema}}.newest_{{segment}}(out xid xid8, out seq bigint, out spilled bigint, out job_id bigint, out batch_id bigint)
language sql stable as $$
  with recursive lane as (
    (select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r order by r.queue, r.priority limit 1)
    union all
    select n.queue, n.priority from lane l cross join lateral (
      select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r
      where (r.queue, r.priority) > (l.queue, l.priority) order by r.queue, r.priority limit 1) n
  ), last as (
    select l.priority, e.xid, e.seq from lane l cross join lateral (
      select r.xid, r.seq from {{schema}}.ready_entries_{{segment}} r
      where r.queue = l.queue and r.priority = l.priority order by r.xid desc, r.seq desc limit 1) e
  )
  select max(l.xid), max(l.seq) filter (where l.priority > 0), max(l.seq) filter (where l.priority < 0),
         (select max(r.job_id) from {{schema}}.ready_entries_{{segment}} r),
         (select max(b.batch_id) from {{schema}}.claim_batches_{{segment}} b)
  from last l
$$;
{{/segments}}

-- Whether a transaction of this database that holds an id as old as p_xid is still open, a prepared one included.
create or replace function {{schema}}.is_open_since(p_xid xid8) returns boolean
language sql volatile as $$
  select exists (
    select from (
      select l.transactionid from pg_locks l
      join pg_stat_activity a on a.pid = l.pid
      where l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.granted and a.pid <> pg_backend_pid()
        and a.datid = (select d.oid from pg_database d where d.datname = current_database())
      union all
      select p.transaction from pg_prepared_xacts p where p.database = current_database()) o
    -- a 32-bit id is within 2^31 of xmax
    where ((s.xmax - o.transactionid::text::bigint + 2147483648) & 4294967295) - 2147483648 >= s.xmax - p_xid::text::bigint)
  from (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as xmax) s
$$;

-- What of the stored numbers this server cannot go on from; null when nothing is. Index probes only: every runtime asks this
-- when it starts. Sequences are read live and tables by the statement's snapshot, so a busy installation never looks wrong.
create or replace function {{schema}}.storage_fault() returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
  v_here     record;
  v_stored   record;
  v_behind   record;
  v_value    bigint;
  v_again    bigint;
begin
  perform {{schema}}.require_read_committed();
  select m.system_identifier = c.system_identifier as same_cluster, m.database_oid = d.oid as same_database into v_here
  from {{schema}}.meta m, pg_control_system() c, pg_database d where d.datname = current_database();

  -- The transaction ids of segments that are only history mean nothing to anybody.
  select max(n.xid) filter (where s.state in ('open', 'sealed')) as xid, coalesce(max(n.seq), 0) as seq, max(n.spilled) as spilled, coalesce(max(n.job_id), 0) as job_id, coalesce(max(n.batch_id), 0) as batch_id,
         pg_snapshot_xmin(pg_current_snapshot()) as xmin, pg_snapshot_xmax(pg_current_snapshot()) as xmax
  into v_stored
  from (
    {{#segments union all}}
    select {{segment}} as slot, * from {{schema}}.newest_{{segment}}()
    {{/segments}}
  ) n
  join {{schema}}.segments s on s.slot = n.slot;
  if v_stored.xid >= v_stored.xmax and v_stored.xid is distinct from pg_current_xact_id_if_assigned() then
    return format('the newest stored transaction id, %s, lies ahead of this server''s, which come to %s', v_stored.xid, v_stored.xmax);
  end if;
  -- A cursor hides what a transaction older than itself commits later. In another cluster the same number may even be in use.
  if not v_here.same_cluster and v_stored.xid >= v_stored.xmin
     or not v_here.same_database and {{schema}}.is_open_since(v_stored.xid) then
    return format('a transaction is open that is not newer than the newest stored transaction id, %s', v_stored.xid);
  end if;

  select s.name, s.next, s.stored into v_behind
  from (
    select 'job_ids' as name, q.last_value + q.is_called::integer as next,
           greatest(v_stored.job_id, (select max(j.job_id) from {{schema}}.deferred_jobs j), (select max(j.job_id) from {{schema}}.terminal_jobs j),
                    (select max(j.job_id) from {{schema}}.dlq_entries j), (select max(j.job_id) from {{schema}}.quarantined_jobs j),
                    (select max(j.job_id) from {{schema}}.spilled_entries j), (select max(j.job_id) from {{schema}}.leases j),
                    (select max(j.job_id) from {{schema}}.lease_closures j)) as stored
    from {{schema}}.job_ids q
    union all
    select 'batch_seq', q.last_value + q.is_called::integer,
           greatest(v_stored.batch_id, (select max(a.batch_id) from {{schema}}.attempt_state a), (select max(l.batch_id) from {{schema}}.leases l))
    from {{schema}}.batch_seq q
    union all
    select 'entry_seq', q.last_value + q.is_called::integer,
           greatest(v_stored.seq, (select max(s.opened_seq) - 1 from {{schema}}.segments s where s.state <> 'free'))
    from {{schema}}.entry_seq q
    union all
    select 'spill_positions', q.last_value + q.is_called::integer, greatest(v_stored.spilled, (select max(h.last_position) from {{schema}}.spill_heads h))
    from {{schema}}.spill_positions q
    union all
    select 'runtime_ids', q.last_value + q.is_called::integer, (select max(r.runtime_id) from {{schema}}.runtimes r) from {{schema}}.runtime_ids q
  ) s
  where s.next <= s.stored limit 1;
  if found then
    return format('the sequence %s is behind the tables: it would give %s next, and %s is stored', v_behind.name, v_behind.next, v_behind.stored);
  end if;

  loop
    select last_value into v_value from {{schema}}.segment_cursor;
    if exists (select from {{schema}}.segments s
               where s.slot = v_value % {{ring}} and s.generation = v_value / {{ring}} and s.state = 'open') then
      return null;
    end if;
    select last_value into v_again from {{schema}}.segment_cursor;  -- or it has moved on in between
    if v_again = v_value then
      return format('segment_cursor, %s, names no open segment', v_value);
    end if;
  end loop;
end $$;

-- Writes the proof that spares completions the full check, when there is none that fits, and when the full check holds in this
-- very statement. Waits for nobody: whoever holds the row is done before the next beat. Under a snapshot that is kept, the row
-- might be newer than it, which would be an error.
create or replace function {{schema}}.prove_identity() returns void
language plpgsql volatile as $$
begin
  if current_setting('transaction_isolation') like 'read %' and exists (
       select from {{schema}}.meta m
       where (m.proven_start = pg_postmaster_start_time() and m.proven_path = pg_relation_filepath(m.tableoid)) is not true) then
    with ours as materialized (
      select m.singleton from {{schema}}.meta m
      where m.system_identifier = (select c.system_identifier from pg_control_system() c)
        and m.database_oid = (select d.oid from pg_database d where d.datname = current_database())
        and (m.proven_start = pg_postmaster_start_time() and m.proven_path = pg_relation_filepath(m.tableoid)) is not true
      for no key update skip locked)
    update {{schema}}.meta m
    set proven_start = pg_postmaster_start_time(), proven_path = pg_relation_filepath(m.tableoid)
    from ours where m.singleton = ours.singleton;
  end if;
end $$;

-- Asked by every runtime at its start. 'ours': nothing to do. 'adopted': this is a copy that can go on as it is (createdb -T, a
-- dump restored into its own cluster, pg_upgrade), and from now on it is an installation of its own, so that tokens of the
-- original never match here. 'refused': storage_fault() says why, rebase_storage() mends it; new jobs would be hidden by
-- restored cursors, or old numbers be given out again.
create or replace function {{schema}}.adopt_database() returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_here   record;
  v_meta   record;
  v_fault  text := {{schema}}.storage_fault();
  v_id     uuid := gen_random_uuid();
begin
  select c.system_identifier, d.oid as database_oid into v_here
  from pg_control_system() c, pg_database d where d.datname = current_database();
  select m.* into v_meta from {{schema}}.meta m;
  if v_meta.system_identifier <> v_here.system_identifier or v_meta.database_oid <> v_here.database_oid then
    select m.* into v_meta from {{schema}}.meta m for update;  -- another runtime may be here before us
    v_fault := {{schema}}.storage_fault();
  end if;
  if v_meta.system_identifier = v_here.system_identifier and v_meta.database_oid = v_here.database_oid then
    if v_fault is null then
      perform {{schema}}.prove_identity();
    end if;
    return case when v_fault is null then 'ours' else 'refused' end;
  end if;
  if v_fault is not null then
    return 'refused';
  end if;
  update {{schema}}.meta m
  set installation_id = v_id, fingerprint = (hashtextextended(v_id::text, 0) & 524287)::integer,
      system_identifier = v_here.system_identifier, database_oid = v_here.database_oid;
  perform {{schema}}.prove_identity();
  return 'adopted';
end $$;
