import type { Found } from "./finding.js"

/** @internal A finding of its own, never silence. */
export const skipped = (check: string, reason: string): Found => ({
  code: "check-skipped",
  object: check,
  found: reason,
  expected: "a role that may look",
  advice:
    "ask again as a superuser, or as a role bound to admin_reader, executor and maintenance that is a member of pg_read_all_data and pg_read_all_stats"
})
