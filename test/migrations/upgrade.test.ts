import { describe, expect, it } from "@effect/vitest"
import * as Migrations from "effect-awa/Migrations"
import { Effect } from "effect"
import { renderSql } from "../../src/internal/renderSql.js"
import { migrations } from "../../src/internal/schemaText.generated.js"
import { freshDatabase } from "./support.js"

/** Version 1 as it stood: its tables, with jobs of every kind that it knew, and none of its functions. */
const versionOne = [
  "create schema awa;",
  renderSql(migrations.find(({ name }) => name.startsWith("0001"))?.text ?? "", { schema: "awa", ring: 4 }),
  `insert into awa.ready_entries_0 (queue, priority, xid, seq, job_id, run_lease, attempt, max_attempts, created_at, kind, args)
   select 'q', 2, '3', n, n, 0, 0, 25, now(), 'k', '{}' from generate_series(1, 3) n;
   insert into awa.claim_batches_0 (batch_id, queue, priority, receipt_base, claimed_at, runtime_id, n, cursor_xid, cursor_seq,
     pending_xids, pending_seqs, job_ids, run_leases, xids, seqs)
   values (1, 'q', 2, 100, now() - interval '1 hour', 1, 2, '3', 2, '{}', '{}', '{1,2}', '{1,1}', '{3,3}', '{1,2}');
   insert into awa.closures_0 (batch_id, batch_index, outcome, closed_at, xid) values (1, 1, 'completed', now(), '4');
   insert into awa.deferred_jobs (job_id, queue, priority, state, run_at, run_lease, attempt, max_attempts, kind, args, created_at)
   values (4, 'q', 2, 'scheduled', now() - interval '1 minute', 0, 0, 25, 'k', '{}', now());
   insert into awa.terminal_jobs (job_id, queue, priority, state, run_lease, attempt, max_attempts, kind, args, created_at, finalized_at)
   values (5, 'q', 2, 'failed', 1, 1, 1, 'k', '{}', now(), now());
   insert into awa.queues (queue) values ('q');
   select setval('awa.job_ids', 5), setval('awa.entry_seq', 3), setval('awa.batch_seq', 1);`
].join("\n")

// C-62
describe("an upgrade of version 1", () => {
  it.scopedLive("keeps every job where it was, and the new functions go on with them", () =>
    Effect.gen(function* () {
      const { admin, redacted } = yield* freshDatabase
      yield* admin.script(`begin; ${versionOne} commit;`)
      expect(yield* Migrations.migrate({ url: redacted })).toMatchObject({
        action: "upgraded",
        previousVersion: 1,
        version: Migrations.schemaVersion
      })
      const states = "select job_id::int as id, state from awa.jobs order by 1"
      expect(yield* admin.rows(states)).toEqual([
        { id: 1, state: "completed" },
        { id: 2, state: "running" },
        { id: 3, state: "available" },
        { id: 4, state: "scheduled" },
        { id: 5, state: "failed" }
      ])
      yield* admin.rows("select awa.promote_due(10)")
      yield* admin.rows("select awa.rescue_stale('1 minute', 10)")
      const claimed = yield* admin.rows("select job_id::int as id, run_lease::int as lease from awa.claim('q', 10, 1)")
      expect(claimed).toEqual([
        { id: 3, lease: 1 },
        { id: 4, lease: 1 },
        { id: 2, lease: 2 }
      ])
      expect(yield* admin.rows("select answer from awa.redrive_jobs('{5}')")).toEqual([{ answer: "redriven" }])
      expect(yield* Migrations.migrate({ url: redacted })).toMatchObject({ action: "unchanged" })
    })
  )
})
