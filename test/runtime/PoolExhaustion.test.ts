/** C-31, F-75: what the runtime owes to attempts and to the database does not wait for the application's pool. */
import { SqlClient } from "@effect/sql"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { Worker } from "effect-awa"
import { Testing } from "effect-awa/testing"
import { eventually, insertRow } from "./support.js"
import { Charge, Declined, Direct, Notify, type OwnedHandler, run } from "./world.js"

const stuck = 16
const poolSize = 10

/** The database itself counts every beat, of attempts and of the runtime. */
const countBeats = Effect.flatMap(Direct, (sql) =>
  sql.unsafe(`
      create table public.beats (job_id bigint not null);
      grant insert on public.beats to public; -- a beat runs as the owner of its function
      create function public.note_attempt() returns trigger language plpgsql as
        'begin insert into public.beats values (new.job_id); return null; end';
      create function public.note_runtime() returns trigger language plpgsql as
        'begin insert into public.beats values (0); return null; end';
      create trigger note after insert or update on awa.attempt_state for each row execute function public.note_attempt();
      create trigger note after update on awa.runtimes for each row execute function public.note_runtime()`)
)

const booking: OwnedHandler = (job) =>
  job.payload.tag === "declined"
    ? new Declined()
    : job.finalize(
        Effect.flatMap(
          SqlClient.SqlClient,
          (sql) => sql`update application_rows set value = (value::integer + 1)::text`
        )
      )

describe("with every caller-owned transaction stuck on a lock and the application pool exhausted", () => {
  it.live(
    "beats, reconciliation and maintenance go on, and nobody who waits is rescued",
    () =>
      run(
        {
          owned: booking,
          staleness: "4 seconds",
          applicationTransaction: "10 minutes",
          worker: { beat: "100 millis", queues: { default: { concurrency: 30 } } }
        },
        () =>
          Effect.gen(function* () {
            const sql = yield* Direct
            const testing = yield* Testing.Testing
            const worker = yield* Worker.Worker
            yield* countBeats
            yield* insertRow("balance", "0")
            const locked = yield* Deferred.make<void>()
            const release = yield* Deferred.make<void>()
            const blocker = yield* Effect.fork(
              sql.withTransaction(
                sql`select from application_rows for update`.pipe(
                  Effect.zipRight(Deferred.succeed(locked, undefined)),
                  Effect.zipRight(Deferred.await(release))
                )
              )
            )
            yield* Deferred.await(locked)
            const held = (yield* Charge.enqueueAll(Array.from({ length: stuck }, () => ({ tag: "stuck" })))).map(
              ({ id }) => String(id)
            )
            const count = (query: typeof exhausted) => Effect.map(query, ([row]) => row?.n ?? 0)
            const exhausted = sql<{ n: number }>`select count(*)::int as n from pg_stat_activity
            where application_name = 'application' and datname = current_database() and wait_event_type = 'Lock'`
            yield* eventually(
              "a pool that is exhausted by transactions that wait for a lock",
              Effect.map(count(exhausted), (n) => n === poolSize)
            )
            yield* eventually(
              "all in flight",
              Effect.map(worker.inFlight, (n) => n === stuck)
            )

            // by a connection of the test's own: the application has none left
            const enqueued = <A, E>(effect: Effect.Effect<A, E, SqlClient.SqlClient>) =>
              Effect.provideService(effect, SqlClient.SqlClient, sql)
            // caller-owned exits to reconcile, ordinary jobs, and jobs that each fall due in a tick of their own
            const declined = yield* enqueued(
              Charge.enqueueAll(
                Array.from({ length: 5 }, () => ({ tag: "declined" })),
                { maxAttempts: 1 }
              )
            )
            for (let i = 1; i <= 10; i++) {
              yield* enqueued(Notify.enqueue({ tag: "later" }, { delay: `${i * 200} millis` }))
            }
            const ended = sql<{
              n: number
            }>`select count(*)::int as n from awa.jobs where state in ('failed', 'completed')`
            yield* eventually(
              "the end of all that needs no application connection",
              Effect.map(count(ended), (n) => n === declined.length + 10),
              "50 seconds"
            )
            yield* eventually(
              "twenty beats of every stuck attempt, and of the runtime",
              Effect.map(
                sql`select job_id from beats where job_id = 0 or job_id = any (${held}::bigint[]) group by job_id having count(*) >= 20`,
                (rows) => rows.length === stuck + 1
              ),
              "50 seconds"
            )
            yield* eventually(
              "attempts that would be stale twice over without their beats",
              Effect.map(
                sql`select from awa.attempts where outcome is null and claimed_at < clock_timestamp() - interval '8 seconds'`,
                (rows) => rows.length === stuck
              ),
              "50 seconds"
            )
            assert.strictEqual(yield* count(exhausted), poolSize)
            assert.deepStrictEqual(
              yield* sql`select distinct outcome::text from awa.attempts where kind = 'charge' order by 1`,
              [{ outcome: "retried" }, { outcome: null }]
            )
            yield* Deferred.succeed(release, undefined)
            yield* Fiber.join(blocker)
            yield* testing.drain()
            for (const id of held)
              assert.strictEqual((yield* testing.expectState(BigInt(id), "completed")).runLease, 1n)
            assert.deepStrictEqual(yield* sql`select value from application_rows`, [{ value: String(stuck) }])
          })
      ),
    180_000
  )
})
