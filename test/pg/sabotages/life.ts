/** Sabotages of what becomes of a job whose worker died. */
import type { Sabotage } from "../sabotages.js"

const suite = "test/pg/died.test.ts > a job whose worker died >"

export const lifeSabotages: ReadonlyArray<Sabotage> = [
  {
    name: "do not count a crash",
    file: "028_dispose.sql",
    from: "or (j.outcome in ('retried', 'rescued') and j.attempt >= j.max_attempts) as ended",
    to: "or (j.outcome = 'retried' and j.attempt >= j.max_attempts) as ended",
    test: `${suite} says how often, from entry to entry, and so does the reason of its end`
  },
  {
    name: "count how often a job was abandoned by the list of its errors",
    file: "028_dispose.sql",
    from: "then 1 + coalesce((\n        select max((e.entry ->> 'abandoned')::integer)",
    to: "then 1 + coalesce((\n        select count(e.entry ->> 'abandoned')::integer",
    test: `${suite} says how often, from entry to entry, and so does the reason of its end`
  },
  {
    name: "bring a job that kills its worker back together with its neighbours",
    file: "028_dispose.sql",
    from: " * (0.5 + random() / 2))::bigint",
    to: ")::bigint",
    test: `${suite} comes back apart from those it took along, from the second time on`
  }
]
