/** The sabotages of caller-owned completion that is switched off, of what is put aside meanwhile, and of switching it on. */
import type { Sabotage } from "../sabotages.js"

const test = (path: string) => `test/pg/gating.test.ts > ${path}`
const refuses =
  "complete_job > refuses a queue for which caller-owned completion is disabled, in every isolation level, and no other one"
const keeps =
  "an attempt that is put aside > does not count, has no due time, and keeps its progress, its errors, its key and its callback's answer"
const race = "an attempt that is put aside > while its queue is being enabled is never left behind, whoever comes first"
const laggards = "enabling a queue > is refused while a live runtime that claims of it does not advertise it, by name"
const order =
  "enabling a queue > moves what was put aside in the order of its ids, so many in a call; a sweep comes for the rest"

export const gatingSabotages: ReadonlyArray<Sabotage> = [
  {
    name: "complete in a queue that is disabled",
    file: "040_complete_job.sql",
    from: "  if v_claim.any_gated then\n",
    to: "  if false then\n",
    test: test(refuses)
  },
  {
    name: "complete at once what a disabled queue's claim brought",
    file: "040_complete_job.sql",
    from: "pg_relation_filepath(m.tableoid) and not m.any_gated\n",
    to: "pg_relation_filepath(m.tableoid)\n",
    test: test(refuses)
  },
  {
    name: "refuse every queue while one is disabled",
    file: "040_complete_job.sql",
    from: "where q.queue = v_queue and not q.caller_owned",
    to: "where not q.caller_owned",
    test: test(refuses)
  },
  {
    name: "serve a disabled queue's lease whose segment is gone",
    file: "040_complete_job.sql",
    from: "  if v_queue is null then  -- a lease",
    to: "  if false then  -- a lease",
    test: test(
      "complete_job > refuses the attempt that left the ring for a lease as well, with its segment and without"
    )
  },
  {
    name: "count the attempt that is put aside",
    file: "028_dispose.sql",
    from: "when j.outcome in ('snoozed', 'released', 'gated') then j.attempt - 1",
    to: "when j.outcome in ('snoozed', 'released') then j.attempt - 1",
    test: test(keeps)
  },
  {
    name: "let what was put aside run again at once",
    file: "028_dispose.sql",
    from: "j.outcome = 'gated' and j.queue = any (v_gated) as gated",
    to: "false as gated",
    test: test(keeps)
  },
  {
    name: "put aside without looking whether the queue is being enabled",
    file: "028_dispose.sql",
    from: "where r.queue = g.queue and not r.caller_owned for share) q);",
    to: "where r.queue = g.queue and not r.caller_owned) q);",
    test: test(race)
  },
  {
    name: "put aside in a queue that is enabled",
    file: "028_dispose.sql",
    from: "where r.queue = g.queue and not r.caller_owned for share) q);",
    to: "where r.queue = g.queue for share) q);",
    test: test(race)
  },
  {
    name: "show a due time where there is none",
    file: "080_views.sql",
    from: "       d.created_at, nullif(d.run_at, 'infinity'), null, null, null, null\nfrom {{schema}}.deferred_jobs d",
    to: "       d.created_at, d.run_at, null, null, null, null\nfrom {{schema}}.deferred_jobs d",
    test: test(keeps)
  },
  {
    name: "do not tell who claims of a disabled queue",
    file: "020_claim.sql",
    from: " or (v_settings.gated and v_left < p_limit) then",
    to: " then",
    test: test("claim > says with what it took that its queue is disabled, and with nothing else")
  },
  {
    name: "enable whoever is in the way",
    file: "090_admin.sql",
    from: "if v_laggards is not null then",
    to: "if false then",
    test: test(laggards)
  },
  {
    name: "take the word of a runtime that names no version",
    file: "090_admin.sql",
    from: "then (r.capabilities ->> 'callerOwned')::numeric >= 1 else false end",
    to: "then (r.capabilities ->> 'callerOwned')::numeric >= 1 else r.capabilities ? 'callerOwned' end",
    test: test(laggards)
  },
  {
    name: "wait for the runtimes of other queues",
    file: "090_admin.sql",
    from: "and coalesce(jsonb_typeof(r.capabilities -> 'queues') <> 'array' or r.capabilities -> 'queues' ? p_queue, true)",
    to: "",
    test: test(laggards)
  },
  {
    name: "believe that a runtime which does not say what it claims claims nothing",
    file: "090_admin.sql",
    from: "or r.capabilities -> 'queues' ? p_queue, true)",
    to: "or r.capabilities -> 'queues' ? p_queue, false)",
    test: test(laggards)
  },
  {
    name: "wait for runtimes that are gone",
    file: "090_admin.sql",
    from: "where r.beat_at > clock_timestamp() - p_staleness\n    and coalesce(",
    to: "where coalesce(",
    test: test(laggards)
  },
  {
    name: "leave to nobody what one call does not move",
    file: "078_sweep.sql",
    from: "return v_total + {{schema}}.promote_gated(null, p_limit);",
    to: "return v_total;",
    test: test(order)
  },
  {
    name: "move what was put aside for a queue that is still disabled",
    file: "071_promote.sql",
    from: "where q.caller_owned and (p_queue is null or q.queue = p_queue)",
    to: "where (p_queue is null or q.queue = p_queue)",
    test: test(order)
  },
  {
    name: "wait for whoever holds a job that was put aside",
    file: "071_promote.sql",
    from: "order by d.job_id limit p_limit for update skip locked) g\n    where q.caller_owned",
    to: "order by d.job_id limit p_limit for update) g\n    where q.caller_owned",
    test: test("enabling a queue > leaves what another transaction holds, and does not wait for it")
  },
  {
    name: "enable one queue while another one is being disabled",
    file: "090_admin.sql",
    from: "  perform from {{schema}}.meta m for no key update;  -- one at a time",
    to: "  -- one at a time",
    test: test(
      "enabling a queue > and disabling another one at the same time keeps the installation's flag right, whoever comes first"
    )
  }
]
