/** @internal How bad a finding is; `strict` where `--strict` says more, and what it means. */
export interface CodeEntry {
  readonly severity: "error" | "warning" | "note"
  readonly strict?: "error"
  readonly meaning: string
}

const entry = (severity: CodeEntry["severity"], meaning: string): CodeEntry => ({ severity, meaning })

/** @internal Every code that doctor knows. A code, once released, keeps its name and its meaning. */
export const codes = {
  "check-skipped": {
    severity: "warning",
    strict: "error",
    meaning: "a check could not be made, for lack of a privilege"
  },
  "profile-compatible": {
    severity: "note",
    strict: "error",
    meaning: "tables and routines belong to one role: the compatible profile (C-51)"
  },
  "schema-not-current": {
    severity: "warning",
    strict: "error",
    meaning: "the functions were installed by another version of the library (C-62)"
  },

  "routine-missing": entry("error", "a routine of the manifest is not there"),
  "routine-signature": entry("error", "a routine takes or returns something else"),
  "routine-overload": entry("error", "a second routine has the name of one of the manifest (C-15, C-54)"),
  "routine-unexpected": entry("warning", "a routine that the manifest does not know"),
  "routine-owner": entry("error", "a routine belongs to another role than the others"),
  "routine-security": entry("error", "SECURITY DEFINER where it must not be, or not where it must (C-50)"),
  "routine-language": entry("error", "a routine is written in another language"),
  "routine-search-path": entry("error", "a routine's search_path is not the fixed one (C-50)"),
  "routine-settings": entry("error", "a routine's other settings differ"),
  "routine-attributes": entry("error", "volatility, strictness, parallel safety, leakproof or kind differ"),
  "routine-body": entry("error", "a routine does something else than this version's"),
  "routine-acl": entry("error", "EXECUTE is not exactly manifest × bindings (C-52)"),
  "routine-public": entry("error", "PUBLIC may execute a routine (C-50)"),
  "routine-shadow": entry("warning", "a routine of the same name stands before ours on a role's search_path (C-54)"),

  "relation-missing": entry("error", "a table, view, sequence or type of the manifest is not there"),
  "relation-unexpected": entry("warning", "a table, view or sequence that the manifest does not know"),
  "relation-owner": entry("error", "a relation belongs to another role than the others"),
  "relation-acl": entry("error", "privileges on a relation or column are not exactly manifest × bindings (C-52)"),
  "relation-public": entry("error", "PUBLIC has a privilege on a relation"),
  "relation-trigger": entry(
    "error",
    "a trigger, rule or policy that nobody knows, or one of ours that does not fire always"
  ),

  "schema-owner": entry("error", "the schema does not belong to the owner of its tables"),
  "schema-acl": entry("error", "privileges on the schema are not exactly manifest × bindings (C-52)"),
  "schema-public": entry("error", "PUBLIC has a privilege on the schema"),

  "owner-attributes": entry("error", "an owner can log in, or has an attribute that no owner has (C-51)"),
  "owner-member": entry("error", "an owner is a member of another role (C-51)"),
  "binding-role-missing": entry("warning", "a capability is bound to a role that does not exist"),
  "binding-owner": entry("error", "a capability is bound to an owner"),
  "binding-attributes": entry("error", "a bound role is more than any capability needs: no grant binds it"),

  "role-set-path": entry(
    "error",
    "a role other than the migrator can become an owner, or the migrator, by SET ROLE (C-51)"
  ),
  "role-inherit-path": entry("error", "a role has an owner's privileges as its own, by INHERIT (C-51)"),
  "role-admin-path": entry("error", "a role can make itself a member of an owner, by ADMIN (C-51)"),
  "role-creator-admin": entry("note", "the implicit ADMIN of the role that created an owner, on 16 and later (C-51)"),
  "role-migrator-inherits": entry("error", "the migrator has an owner's privileges without asking for them (C-51)"),
  "role-migrator-unclear": entry("error", "several roles could be the migrator; `--migrator` says which one is"),
  "role-creates": entry("warning", "on 15, a bound role with CREATEROLE can make itself a member of an owner"),

  "path-writable": entry("warning", "anybody may create what a call without a schema's name would reach (C-54)"),
  "finalizer-timeouts": entry(
    "warning",
    "a finalizer's role has no limits: what it forgets open holds an attempt's lock (C-40)"
  ),
  "setting-read-only": entry("error", "transactions of a role begin read-only: nothing can be written"),
  "setting-isolation": entry("warning", "transactions begin in another level than READ COMMITTED: expect 40001 (C-14)"),
  "setting-synchronous-commit": entry("warning", "a commit that was answered can be lost in a crash"),
  "setting-time-zone": entry("note", "times are shown in a zone of their own; what is stored is the same"),
  "setting-date-style": entry("warning", "dates are not shown as ISO: drivers read them wrongly"),
  "setting-row-security": entry("note", "row_security is off: a query that a policy would narrow fails instead"),
  "setting-strings": entry("warning", "a backslash in a literal of the application's own means something else"),
  "setting-idle-session": entry("warning", "the runtime's listening connection is ended again and again"),
  "setting-transaction-timeout": entry("warning", "a limit of whole transactions cuts the runtime's statements short"),

  "server-standby": entry("error", "this is a standby: nothing can be written"),
  "database-copied": entry(
    "warning",
    "the data are a copy's: the first runtime gives them a new installation id (C-34)"
  ),
  "database-refused": entry("error", "no runtime starts on this database (C-34)"),
  "sequence-settings": entry("error", "a sequence counts differently; batch_seq must have CACHE 1"),
  "sequence-headroom": entry("warning", "a sequence has used up more than half of its numbers"),
  "prepared-transaction": entry("warning", "a prepared transaction is old: it holds locks and the horizon"),
  "xmin-held": entry("warning", "an old transaction holds back VACUUM"),
  "ring-blocked": entry("warning", "a segment of the ring cannot be drained or pruned"),
  "ring-full": entry("warning", "no segment is free: the current one grows"),
  "publication-truncate": entry("warning", "a publication sends the TRUNCATE of a pruned segment to its subscribers"),
  "statistics-stale": entry("note", "a table changed by more than half since it was analyzed"),
  "runtimes-mixed": entry(
    "warning",
    "live runtimes speak different contract versions, or do not all complete in callers' transactions (C-22, C-60)"
  ),
  "connection-budget": entry(
    "warning",
    "the pools of the live runtimes may ask for more connections than there are (C-33)"
  ),
  "clock-offset": entry("warning", "this process's clock and the server's differ"),
  "pooler-transaction-mode": entry("note", "a pooler in transaction mode stands in between: sessions do not last")
} as const satisfies Readonly<Record<string, CodeEntry>>

/** @internal */
export type Code = keyof typeof codes
