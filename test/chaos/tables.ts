/**
 * The application's tables, and the truth about attempts: triggers copy every claim and every end out of the ring, which is
 * pruned all the time (a batch without attempts is no claim: it moved a lane's cursor). What is rolled back leaves none of it. No constraint keeps an effect from being written twice.
 */
const audited = (ring: number): string =>
  Array.from(
    { length: ring },
    (_, n) => `
create trigger chaos after insert on awa.claim_batches_${n} for each row when (new.n > 0) execute function chaos.note_claims();
create trigger chaos after insert on awa.closures_${n} referencing new table as closed for each statement
  execute function chaos.note_closures();`
  ).join("")

export const tables = (ring: number): string => `
create schema chaos;
create table chaos.orders (id text primary key, kind text not null, expects text not null, job_id bigint not null,
  answer text not null, key text, due_at timestamptz, written_at timestamptz not null default clock_timestamp());
create table chaos.effects (order_id text not null, job_id bigint not null, run_lease bigint not null, worker text not null,
  at timestamptz not null default clock_timestamp());
create table chaos.deliveries (order_id text not null, worker text not null);
create table chaos.workers (name text not null, runtime_id bigint not null, ahead_ms float8 not null, settings jsonb not null);
create table chaos.claims (batch_id bigint not null, batch_index integer not null, job_id bigint not null, run_lease bigint not null,
  runtime_id bigint not null, claimed_at timestamptz not null, primary key (batch_id, batch_index));
create table chaos.closures (batch_id bigint not null, batch_index integer not null, outcome text not null,
  closed_at timestamptz not null, by_caller boolean not null, primary key (batch_id, batch_index));
create table chaos.lease_ends (job_id bigint not null, run_lease bigint not null, outcome text not null,
  closed_at timestamptz not null, by_caller boolean not null);
create index on chaos.claims (job_id);
create index on chaos.claims (runtime_id, claimed_at);
create index on chaos.closures (closed_at);
create function chaos.note_claims() returns trigger language plpgsql as $$
begin
  insert into chaos.claims
  select new.batch_id, t.idx, t.job_id, t.run_lease, new.runtime_id, new.claimed_at
  from unnest(new.job_ids, new.run_leases) with ordinality as t(job_id, run_lease, idx);
  return null;
end $$;
create function chaos.note_closures() returns trigger language plpgsql as $$
begin
  insert into chaos.closures select c.batch_id, c.batch_index, c.outcome::text, c.closed_at, c.closer is null from closed c;
  return null;
end $$;
create function chaos.note_lease_ends() returns trigger language plpgsql as $$
begin
  insert into chaos.lease_ends values (new.job_id, new.run_lease, new.outcome::text, new.closed_at, new.closer is null);
  return null;
end $$;
create trigger chaos after insert on awa.lease_closures for each row execute function chaos.note_lease_ends();
create view chaos.attempts as
select c.job_id, c.run_lease, c.runtime_id, c.claimed_at, coalesce(l.outcome, nullif(e.outcome, 'materialized')) as outcome,
       coalesce(l.closed_at, e.closed_at) as closed_at, coalesce(l.by_caller, e.by_caller) as by_caller
from chaos.claims c
left join chaos.closures e using (batch_id, batch_index)
left join chaos.lease_ends l on e.outcome = 'materialized' and l.job_id = c.job_id and l.run_lease = c.run_lease;
${audited(ring)}
`
