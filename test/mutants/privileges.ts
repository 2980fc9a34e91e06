/** Mutants of the privileges: a widened grant, PUBLIC back, an unsafe search_path, an unqualified name. */
import type { Mutant } from "../mutants.js"

const grants = "test/privileges/grants.test.ts"
const roles = "test/privileges/roles.test.ts"
const mends = "takes away columns, grant options and what came of them, and mends what is otherwise up to date"
const calls = "test/privileges/calls.test.ts"
const nothingMore = "come back to nothing more: by hand, by DROP and CREATE, by a new routine, by default privileges"
const works = "do their work with what they hold"
const led = "and find nothing else, whatever their search_path, temporary objects and operators say"

export const privilegeMutants: ReadonlyArray<Mutant> = [
  {
    name: "leave what somebody granted by hand",
    file: "schema/privileges.sql",
    from: "where (v_exact or g.role = 0) and (g.excess or d.object is null)",
    to: "where false",
    suite: grants,
    test: nothingMore
  },
  {
    name: "leave to PUBLIC what it was given on tables",
    file: "schema/privileges.sql",
    from: "where a.grantee <> v_me and a.grantor = v_me",
    to: "where a.grantee not in (0, v_me) and a.grantor = v_me",
    suite: grants,
    test: nothingMore
  },
  {
    name: "keep the CREATE that was lent to the owner of the routines",
    file: "src/internal/migrateScript.ts",
    from: "privileges, // and CREATE is taken back",
    to: "",
    suite: grants,
    test: nothingMore
  },
  {
    name: "widen the finalizer's grant to expect_completion",
    file: "schema/privileges.sql",
    from: "      select b.capability, r.oid from",
    to: "      select unnest(array[b.capability, case b.capability when 'finalizer' then 'expectation' end]), r.oid from",
    suite: calls,
    test: works
  },
  {
    name: "call complete_job with the caller's search_path",
    file: "schema/functions/040_complete_job.sql",
    from: "language plpgsql volatile security definer\nset search_path = pg_catalog, pg_temp\n",
    to: "language plpgsql volatile security definer\n",
    suite: calls,
    test: led
  },
  {
    name: "look for meta by the search_path",
    file: "schema/functions/040_complete_job.sql",
    from: "from (select m.*, m.tableoid from {{schema}}.meta m limit 1) m",
    to: "from (select m.*, m.tableoid from meta m limit 1) m",
    suite: calls,
    test: works
  },
  {
    name: "claim as the runtime's own role",
    file: "schema/functions/020_claim.sql",
    from: "security definer",
    to: "security invoker",
    suite: calls,
    test: works
  },
  {
    name: "write the function's owner into the audit",
    file: "schema/functions/090_admin.sql",
    from: "values (session_user, p_verb, p_detail)",
    to: "values (current_user, p_verb, p_detail)",
    suite: calls,
    test: works
  },
  {
    name: "leave grant options, and what their holders granted",
    file: "schema/privileges.sql",
    from: "a.grantee as role, a.is_grantable as excess",
    to: "a.grantee as role, false as excess",
    suite: roles,
    test: mends
  },
  {
    name: "leave privileges on columns",
    file: "schema/privileges.sql",
    from: "where c.relnamespace = v_schema and c.relowner = v_me and a.grantee <> v_me",
    to: "where false and c.relowner = v_me and a.grantee <> v_me",
    suite: roles,
    test: mends
  },
  {
    name: "see to no privileges where nothing else is to be done",
    file: "src/internal/migrateRun.ts",
    from: "return plan.newer || !ownsTables ? [] : Script.privilegeSteps(target, owners)",
    to: "return plan.newer || !ownsTables || Script.privilegeSteps(target, owners).length > 0 ? [] : []",
    suite: roles,
    test: mends
  },
  {
    name: "hand over what somebody else put into the schema",
    file: "src/internal/rolesPlan.ts",
    from: "  if (foreign.length > 0) {",
    to: "  if (foreign.length > 1_000) {",
    suite: roles,
    test: "takes over nothing that somebody else put there"
  },
  {
    name: "hand over to an owner that others can be",
    file: "src/internal/rolesPlan.ts",
    from: "    if (others.length > 0) {",
    to: "    if (others.length > 1_000) {",
    suite: roles,
    test: "refuses owners that others can be"
  },
  {
    name: "migrate somebody else's installation as a superuser",
    file: "src/internal/migrateOwners.ts",
    from: "if (tables !== me && found.super) {",
    to: "if (tables !== me && found.super && tables === me) {",
    suite: roles,
    test: "is no superuser: what its owner made would run as one"
  },
  {
    name: "let whoever leads sweep the audit",
    file: "schema/functions/078_sweep.sql",
    from: "greatest(p_terminal, interval '30 days')",
    to: "p_terminal",
    suite: calls,
    test: works
  }
]
