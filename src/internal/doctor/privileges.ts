import { finalizerCapabilities, manifest, unfold } from "../manifest.js"
import { wantedPrivileges } from "../privileges.js"
import { quoteIdentifier } from "../renderSql.js"
import type { Code } from "./codes.js"
import type { Found } from "./finding.js"
import type { Grant } from "./look.js"
import { actingAs, type Check, isExact, isStrict, type Subject, transaction } from "./subject.js"

interface Due {
  readonly kind: Grant["kind"]
  readonly name: string
  readonly privilege: string
  readonly role: string
}

/** Who holds what stands in the manifest for a kind of holder. */
const holders = ({ bindings = [], installed }: Subject): ReadonlyMap<string, ReadonlySet<string>> => {
  const exists = new Set(installed.roles.map(({ name }) => name))
  const bound = bindings.filter(({ role }) => exists.has(role))
  const map = new Map<string, Set<string>>()
  const add = (holder: string, role: string) => map.set(holder, (map.get(holder) ?? new Set<string>()).add(role))
  for (const { capability, role } of bound) {
    add(capability, role)
    add("anybody", role)
    if (!finalizerCapabilities.includes(capability) && capability !== "expectation") add("contract", role)
  }
  if (installed.tablesOwner !== installed.routinesOwner) add("owner", installed.routinesOwner)
  return map
}

const ownerOf = ({ installed }: Subject, kind: Grant["kind"], name: string): string => {
  if (kind === "schema") return installed.schemaOwner
  if (kind === "relation") return installed.relations.find((relation) => relation.name === name)?.owner ?? ""
  return (
    installed.routines.find((routine) => `${routine.name}(${routine.arguments})` === name)?.owner ??
    installed.routinesOwner
  )
}

const due = (subject: Subject): ReadonlyArray<Due> => {
  const { installed, schema } = subject
  const roles = holders(subject)
  return wantedPrivileges({ schema, ring: installed.ring }).flatMap(({ holder, kind, name: template, privilege }) => {
    if (kind === "type") return [] // which keeps nobody from anything but the migrator
    const name = template.replaceAll("{schema}", () => quoteIdentifier(schema))
    return [...(roles.get(holder) ?? [])]
      .filter((role) => role !== ownerOf(subject, kind, name))
      .map((role) => ({ kind, name, privilege, role }))
  })
}

const keyOf = ({ kind, name, privilege }: Omit<Due, "role">, role: string | null): string =>
  JSON.stringify([kind, name, privilege, role])

const codeOf = (kind: Grant["kind"], role: string | null): Code => {
  const codes = {
    routine: ["routine-acl", "routine-public"],
    relation: ["relation-acl", "relation-public"],
    schema: ["schema-acl", "schema-public"]
  } as const
  return codes[kind][role === null ? 1 : 0]
}

const label = (kind: Grant["kind"], name: string): string => (kind === "schema" ? "the schema" : name)

/** `select ("args")`: the privilege of a column, as GRANT says it. */
const revoked = (subject: Subject, grant: Grant): Found => ({
  code: codeOf(grant.kind, grant.grantee),
  object: label(grant.kind, grant.name),
  found: `${grant.grantee ?? "PUBLIC"} has ${grant.privilege}, granted by ${grant.grantor}`,
  expected: grant.grantee === null ? "PUBLIC has nothing" : `no such privilege of ${grant.grantee}`,
  sql: transaction(
    ...actingAs(
      grant.grantor,
      `revoke ${grant.privilege} on ${grant.object} from ${grant.grantee === null ? "public" : quoteIdentifier(grant.grantee)} cascade`
    )
  ),
  ...(isStrict(subject) || grant.grantee === null
    ? {}
    : { advice: "a role that needs it is bound with `awa roles apply`, which grants it" })
})

const optionTaken = (grant: Grant): Found => ({
  code: codeOf(grant.kind, grant.grantee),
  object: label(grant.kind, grant.name),
  found: `${grant.grantee ?? "PUBLIC"} may grant ${grant.privilege} to others`,
  expected: "no grant option",
  sql: transaction(
    ...actingAs(
      grant.grantor,
      `revoke grant option for ${grant.privilege} on ${grant.object} from ${quoteIdentifier(grant.grantee ?? "")} cascade`
    )
  )
})

const objectOf = ({ installed, schema }: Subject, { kind, name }: Due): string | undefined => {
  if (kind === "schema") return `schema ${quoteIdentifier(schema)}`
  if (kind === "routine") {
    return installed.routines.find((routine) => `${routine.name}(${routine.arguments})` === name)?.object
  }
  return installed.relations.find((relation) => relation.name === name)?.object.replace(/^view /, "table ")
}

const missing = (subject: Subject, wanted: Due): ReadonlyArray<Found> => {
  const object = objectOf(subject, wanted)
  if (object === undefined) return [] // it has a finding of its own
  return [
    {
      code: codeOf(wanted.kind, wanted.role),
      object: label(wanted.kind, wanted.name),
      found: `${wanted.role} lacks ${wanted.privilege}`,
      expected: `${wanted.privilege}, by the manifest and the bindings`,
      sql: transaction(
        ...actingAs(
          ownerOf(subject, wanted.kind, wanted.name),
          `grant ${wanted.privilege} on ${object} to ${quoteIdentifier(wanted.role)}`
        )
      )
    }
  ]
}

/** @internal What a routine that was created has to be given, and PUBLIC to lose. */
export const grantsDue = (subject: Subject, name: string): ReadonlyArray<string> => {
  const object = `routine ${quoteIdentifier(subject.schema)}.${name}`
  return [
    `revoke all on ${object} from public`,
    ...due(subject)
      .filter((wanted) => wanted.kind === "routine" && wanted.name === name)
      .map(({ role }) => `grant execute on ${object} to ${quoteIdentifier(role)}`)
  ]
}

const knownObjects = ({ installed, schema }: Subject): ReadonlySet<string> =>
  new Set([
    ...manifest.routines
      .flatMap((routine) => unfold(routine, installed.ring))
      .map(
        ({ arguments: types, name }) =>
          `routine ${name}(${types.replaceAll("{schema}", () => quoteIdentifier(schema))})`
      ),
    ...manifest.relations.flatMap((relation) => unfold(relation, installed.ring)).map(({ name }) => `relation ${name}`)
  ])

/**
 * Who may do what is manifest × bindings, exactly (C-52). Where no roles were ever applied, only PUBLIC is looked at.
 *
 * @internal
 */
export const checkPrivileges: Check = (subject) => {
  const known = knownObjects(subject)
  const wanted = due(subject)
  const wantedKeys = new Set(wanted.map((one) => keyOf(one, one.role)))
  const foundKeys = new Set(subject.installed.grants.map((grant) => keyOf(grant, grant.grantee)))
  const exact = isExact(subject) && subject.bindings !== undefined
  return [
    ...subject.installed.grants.flatMap((grant) => {
      // what nobody knows has a finding of its own, whoever may use it
      if (grant.kind !== "schema" && !known.has(`${grant.kind} ${grant.name}`)) return []
      if (grant.grantee !== null && !exact) return []
      if (!wantedKeys.has(keyOf(grant, grant.grantee))) return [revoked(subject, grant)]
      return grant.grantable ? [optionTaken(grant)] : []
    }),
    ...(exact
      ? wanted.filter((one) => !foundKeys.has(keyOf(one, one.role))).flatMap((one) => missing(subject, one))
      : [])
  ]
}
