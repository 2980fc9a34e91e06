/** Mutants of doctor: a group of checks each. */
import type { Mutant } from "../mutants.js"

const routines = "test/doctor/routines.test.ts"
const privileges = "test/doctor/privileges.test.ts"
const roles = "test/doctor/roleGraph.test.ts"
const settings = "test/doctor/settings.test.ts"
const environment = "test/doctor/environment.test.ts"
const start = "test/doctor/strictStart.test.ts"

export const doctorMutants: ReadonlyArray<Mutant> = [
  {
    name: "doctor: believe a body by its name",
    file: "src/internal/doctor/routines.ts",
    from: '["routine-body", shortHash(found.bodyHash), shortHash(expected.bodyHash)]',
    to: '["routine-body", "", ""]',
    suite: routines,
    test: "doctor finds, and mends the body"
  },
  {
    name: "doctor: take an overload for nothing",
    file: "src/internal/doctor/routines.ts",
    from: "const overloads = named.filter((routine) => routine !== ours)",
    to: "const overloads = named.filter((routine) => routine !== ours && named.length === 0)",
    suite: routines,
    test: "doctor finds, and mends an overload"
  },
  {
    name: "doctor: look for shadows on no role's own path",
    file: "src/internal/doctor/shadows.ts",
    from: "order by s.setrole <> 0 desc, s.setdatabase <> 0 desc limit 1),",
    to: "and s.setrole = 0 limit 1),",
    suite: routines,
    test: "doctor finds, and mends a routine of the same name on the search_path of one role"
  },
  {
    name: "doctor: let PUBLIC be where nobody is bound",
    file: "src/internal/doctor/privileges.ts",
    from: "if (grant.grantee !== null && !exact) return []",
    to: "if (!exact) return []",
    suite: privileges,
    test: "doctor leaves what was granted by hand alone where no role was ever bound, PUBLIC excepted"
  },
  {
    name: "doctor: forget what a role lacks",
    file: "src/internal/doctor/privileges.ts",
    from: "? wanted.filter((one) => !foundKeys.has(keyOf(one, one.role)))",
    to: "? wanted.filter((one) => foundKeys.has(one.name))",
    suite: privileges,
    test: "doctor finds, and mends EXECUTE that was taken away"
  },
  {
    name: "doctor: forget the columns",
    file: "src/internal/doctor/look.ts",
    from: "cross join lateral aclexplode(t.attacl) a",
    to: "cross join lateral aclexplode(t.attacl) a where false",
    suite: privileges,
    test: "doctor finds, and mends a privilege on one column"
  },
  {
    name: "doctor: say nothing of what it may not read",
    file: "src/internal/doctor/examine.ts",
    from: '? [skipped("bindings, and privileges by them", `${readable.me} may not read ${table}`)]',
    to: "? []",
    suite: privileges,
    test: "doctor finds, and mends nothing of what it may not look at, and says so"
  },
  {
    name: "doctor: take a name that needs no quotes for another",
    file: "src/internal/doctor/look.ts",
    from: "quote_ident(n.nspname) || '.'",
    to: "quote_literal(n.nspname) || '.'",
    suite: privileges,
    test: "doctor knows an installation in a schema called awa"
  },
  {
    name: "doctor: mend half an upgrade",
    file: "src/internal/doctor/installation.ts",
    from: "isThisVersion || !ofOneVersion.test(code)",
    to: "isThisVersion || ofOneVersion.test(code) || code.length > 0",
    suite: privileges,
    test: "doctor finds, and mends functions of another version"
  },
  {
    name: "doctor: let anybody become the migrator",
    file: "src/internal/doctor/roleGraph.ts",
    from: '...(migrator.name === undefined ? [] : [[migrator.name, "the migrator"] as const]),',
    to: "",
    suite: roles,
    test: "doctor finds, and mends a member of the migrator"
  },
  {
    name: "doctor: stop at the first member",
    file: "src/internal/doctor/roleGraph.ts",
    from: "  while (front.length > 0) {",
    to: "  while (front.length > 1) {",
    suite: roles,
    test: "doctor finds, and mends a member of a member of a member"
  },
  {
    name: "doctor: let the migrator pass it on",
    file: "src/internal/doctor/roleGraph.ts",
    from: "set && !inherit && !admin",
    to: "set && !inherit && (admin || !admin)",
    suite: roles,
    test: "doctor finds, and mends a migrator with ADMIN"
  },
  {
    name: "doctor: read settings of all roles only",
    file: "src/internal/doctor/settings.ts",
    from: "{ at: at(true, true), level:",
    to: "{ at: at(false, false), level:",
    suite: settings,
    test: "doctor finds, and mends synchronous_commit off, of one role in this database"
  },
  {
    name: "doctor: let batch_seq have any cache",
    file: "src/internal/doctor/storage.ts",
    from: "{ batch_seq: 1n, spill_positions",
    to: "{ spill_positions",
    suite: environment,
    test: "doctor finds, and mends a cache of batch_seq"
  },
  {
    name: "doctor: overlook who holds the horizon",
    file: "src/internal/doctor/sessions.ts",
    from: ".filter(({ pid }) => !said.pids.has(pid))",
    to: ".filter(({ pid }) => said.pids.has(pid))",
    suite: environment,
    test: "doctor finds, and mends a transaction that is left open, by its pid"
  },
  {
    name: "doctor: take a copy for the original",
    file: "src/internal/doctor/storage.ts",
    from: "storedSystem === system && storedDatabase === database",
    to: "storedSystem === system || storedDatabase === database",
    suite: environment,
    test: "doctor finds, and mends a copy"
  },
  {
    name: "doctor: ask a pooler without another transaction between",
    file: "src/internal/doctor/pooler.ts",
    from: '"begin; select 1"',
    to: '"select 1"',
    suite: environment,
    test: "doctor finds, and mends a pooler in transaction mode, and none in session mode"
  },
  {
    name: "doctor: start strictly whatever is found",
    file: "src/internal/doctor/strictStart.ts",
    from: "if (errors.length === 0) return",
    to: "if (errors.length >= 0) return",
    suite: start,
    test: "a strict start refuses EXECUTE of PUBLIC"
  },
  {
    name: "doctor: read names by the session's own search_path",
    file: "src/internal/doctor/look.ts",
    from: "from named, here n, version v, found f where",
    to: "from here n, version v, found f where",
    suite: start,
    test: "a strict start is not fooled by the search_path of its role"
  },
  {
    name: "doctor: exit with 1 whatever went wrong",
    file: "src/cli/doctor.ts",
    from: "error instanceof DoctorFound) ? 1 : 2",
    to: "error instanceof DoctorFound) ? 1 : 1",
    suite: "test/cli/doctor.test.ts",
    test: "awa doctor exits with 0 for nothing, 1 for errors, 2 for what it could not examine"
  }
]
