/**
 * What the actors of a run share. The truth is kept by the database itself: producers note their jobs in the transaction that
 * enqueues them, callers book in the transaction that completes, and triggers copy every claim and closure out of the ring,
 * which is pruned all the time. What is rolled back leaves none of it.
 */
import { Effect, Ref, type Scope, ScopedRef } from "effect"
import { connect, type PgFault, type Session } from "../pg/database.js"

export const queues = ["a", "b", "c"] as const

export interface World {
  readonly url: string
  readonly seed: number
  readonly jobs: number
  readonly staleness: string
  /** Producers have committed this many jobs so far. */
  readonly committed: Ref.Ref<number>
  /** Jobs that are committed and not completed, as of a moment ago. */
  readonly backlog: Ref.Ref<number>
  readonly stopped: Ref.Ref<boolean>
  /** Transactions that were prepared and wait for their end, and how many jobs each has. */
  readonly prepared: Array<readonly [string, number]>
  readonly counts: Map<string, number>
}

export const count = (world: World, what: string, by = 1): void => {
  world.counts.set(what, (world.counts.get(what) ?? 0) + by)
}

export const auditText = (ring: number): string => `
create schema audit;
create table audit.jobs (job_id bigint primary key);
create table audit.ledger (job_id bigint not null, run_lease bigint not null);
create table audit.claims (batch_id bigint not null, batch_index integer not null, job_id bigint not null, run_lease bigint not null,
  behind boolean not null, pending integer not null);
create table audit.closures (batch_id bigint not null, batch_index integer not null, outcome text not null, closer bigint);
create function audit.note_claims() returns trigger language plpgsql as $$
declare
  v_cursor xid8;
begin
  execute format('select b.cursor_xid from awa.%I b where b.queue = $1 and b.priority = $2 and b.batch_id < $3
                  order by b.batch_id desc limit 1', tg_table_name)
  into v_cursor using new.queue, new.priority, new.batch_id;
  insert into audit.claims
  select new.batch_id, t.idx, t.job_id, t.run_lease, coalesce(t.xid < v_cursor, false), cardinality(new.pending_xids)
  from unnest(new.job_ids, new.run_leases, new.xids) with ordinality as t(job_id, run_lease, xid, idx);
  return null;
end $$;
create function audit.note_closures() returns trigger language plpgsql as $$
begin
  insert into audit.closures select c.batch_id, c.batch_index, c.outcome::text, c.closer from closed c;
  return null;
end $$;
${Array.from(
  { length: ring },
  (
    _,
    n
  ) => `create trigger audit after insert on awa.claim_batches_${n} for each row execute function audit.note_claims();
create trigger audit after insert on awa.closures_${n} referencing new table as closed for each statement
  execute function audit.note_closures();`
).join("\n")}`

/** A connection that is replaced when it was cut. */
export interface Line {
  readonly session: Effect.Effect<Session>
  readonly renew: Effect.Effect<void, PgFault>
}

export const line = (world: World): Effect.Effect<Line, PgFault, Scope.Scope> =>
  Effect.map(ScopedRef.fromAcquire(connect(world.url)), (ref) => ({
    session: ScopedRef.get(ref),
    renew: ScopedRef.set(ref, connect(world.url))
  }))

/** Runs an actor's round again and again until the run is stopped. */
export const untilStopped = <E, R>(world: World, round: Effect.Effect<unknown, E, R>): Effect.Effect<void, E, R> =>
  Effect.repeat(round, { until: () => Ref.get(world.stopped) }).pipe(Effect.asVoid)

/** Cuts the connection of a session, and waits until its backend is gone: what it did is then decided. */
export const cut = (killer: Session, victim: Session): Effect.Effect<void, PgFault> =>
  killer.value("select pg_terminate_backend($1)", [victim.pid]).pipe(
    Effect.andThen(
      Effect.repeat(killer.value("select count(*) from pg_stat_activity where pid = $1", [victim.pid]), {
        until: (left) => left === 0n
      })
    ),
    Effect.asVoid
  )

/** In a READ COMMITTED transaction of its own, as the runtime calls the engine. */
export const inTransaction = <A>(session: Session, effect: Effect.Effect<A, PgFault>): Effect.Effect<A, PgFault> =>
  session.script("begin isolation level read committed; set local lock_timeout = '2s'").pipe(
    Effect.andThen(effect),
    Effect.tap(() => session.script("commit")),
    Effect.tapError(() => Effect.ignore(session.script("rollback")))
  )
