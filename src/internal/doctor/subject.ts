import { quoteIdentifier } from "../renderSql.js"
import type { Installed } from "./look.js"
import type { Found } from "./finding.js"

/** @internal */
export interface Binding {
  readonly capability: string
  readonly role: string
}

/** @internal What the checks of the installation look at. */
export interface Subject {
  readonly schema: string
  readonly installed: Installed
  /** Undefined: not to be read by who asks. */
  readonly bindings: ReadonlyArray<Binding> | undefined
  /** The only role that may become the owners, where it was said. */
  readonly migrator: string | undefined
}

/** @internal Reads what was looked at, and writes nothing. */
export type Check = (subject: Subject) => ReadonlyArray<Found>

/** @internal Tables and routines have owners of their own. */
export const isStrict = ({ installed }: Subject): boolean => installed.tablesOwner !== installed.routinesOwner

/** @internal A privilege that nobody is bound to may have been given by hand, where no roles were ever applied. */
export const isExact = (subject: Subject): boolean => isStrict(subject) || (subject.bindings ?? []).length > 0

/** @internal */
export const transaction = (...statements: ReadonlyArray<string>): string =>
  [
    "begin",
    "set local standard_conforming_strings = on",
    "set local search_path = pg_catalog, pg_temp",
    ...statements,
    "commit"
  ]
    .map((statement) => `${statement};\n`)
    .join("")

/** @internal */
export const actingAs = (role: string, ...statements: ReadonlyArray<string>): ReadonlyArray<string> => [
  `set local role ${quoteIdentifier(role)}`,
  ...statements,
  "reset role"
]

/** @internal CREATE on the schema, for as long as something is created or given to the role. */
export const lending = (
  { installed, schema }: Subject,
  role: string,
  ...statements: ReadonlyArray<string>
): ReadonlyArray<string> => {
  if (role === installed.schemaOwner) return statements
  const [name, on] = [quoteIdentifier(role), `create on schema ${quoteIdentifier(schema)}`]
  return [
    ...actingAs(installed.schemaOwner, `grant ${on} to ${name}`),
    ...statements,
    ...actingAs(installed.schemaOwner, `revoke ${on} from ${name}`)
  ]
}
