import { awaCommand } from "../awaCommand.js"
import { manifest, unfold } from "../manifest.js"
import { quoteIdentifier } from "../renderSql.js"
import type { Found } from "./finding.js"
import { actingAs, type Check, isStrict, lending, transaction } from "./subject.js"

/**
 * Tables, views, sequences and types: there, and nobody else's; and nothing that runs when they are used.
 *
 * @internal
 */
export const checkRelations: Check = (subject) => {
  const { installed, schema } = subject
  const { routinesOwner, tablesOwner } = installed
  const expected = new Map(
    manifest.relations
      .flatMap((relation) => unfold(relation, installed.ring))
      .map((relation) => [relation.name, relation])
  )
  const found = new Map(installed.relations.map((relation) => [relation.name, relation]))
  const owned = (name: string, object: string, owner: string, should: string): ReadonlyArray<Found> =>
    owner === should
      ? []
      : [
          {
            code: "relation-owner",
            object: name,
            found: `owner ${owner}`,
            expected: `owner ${should}`,
            sql: transaction(...lending(subject, should, `alter ${object} owner to ${quoteIdentifier(should)}`))
          }
        ]
  return [
    ...[...expected.values()].flatMap(({ kind, name }): ReadonlyArray<Found> => {
      const relation = found.get(name)
      if (relation?.kind === kind) {
        return owned(name, relation.object, relation.owner, kind === "view" ? routinesOwner : tablesOwner)
      }
      return [
        {
          code: "relation-missing",
          object: name,
          found: relation === undefined ? `no ${kind} ${name}` : relation.object,
          expected: `a ${kind} of the manifest`,
          advice: `a view comes back with ${awaCommand("migrate", schema)}, when \`meta.rendered_hash\` is emptied; data, from a backup`
        }
      ]
    }),
    ...installed.relations
      .filter(({ kind, name }) => !expected.has(name) && kind !== "type")
      .map(({ name, object }): Found => ({
        code: "relation-unexpected",
        object: name,
        found: object,
        expected: `nothing else in schema ${quoteIdentifier(schema)}`,
        advice: "move it to another schema, or drop it, once it is known whose it is"
      })),
    ...installed.hooks.map(({ expected: should, mend, what }): Found => ({
      code: "relation-trigger",
      object: what,
      found: what,
      expected: should,
      sql: transaction(...actingAs(tablesOwner, mend))
    }))
  ]
}

/**
 * The owners are nobody: NOLOGIN, without attributes, members of nothing (C-51); and the schema belongs to its tables' owner.
 *
 * @internal
 */
export const checkOwners: Check = (subject) => {
  const { installed, schema } = subject
  const { routinesOwner, schemaOwner, tablesOwner } = installed
  const ofSchema: ReadonlyArray<Found> =
    schemaOwner === tablesOwner
      ? []
      : [
          {
            code: "schema-owner",
            object: "the schema",
            found: `owner ${schemaOwner}`,
            expected: `owner ${tablesOwner}, who owns the tables`,
            sql: transaction(`alter schema ${quoteIdentifier(schema)} owner to ${quoteIdentifier(tablesOwner)}`)
          }
        ]
  if (!isStrict(subject)) {
    return [
      ...ofSchema,
      {
        code: "profile-compatible",
        object: "the installation",
        found: `${tablesOwner} owns tables and routines`,
        expected: "strict: owners of their own, that nobody logs in as",
        advice: `${awaCommand("roles plan --profile strict", schema)} prints what makes it strict`
      }
    ]
  }
  const owners = [tablesOwner, routinesOwner]
  return [
    ...ofSchema,
    ...installed.roles
      .filter(({ excess, name }) => owners.includes(name) && excess.length > 0)
      .map(({ excess, name }): Found => ({
        code: "owner-attributes",
        object: name,
        found: `an owner without ${excess.join(", ")}`,
        expected: "nologin nosuperuser nocreatedb nocreaterole nobypassrls noreplication",
        sql: transaction(`alter role ${quoteIdentifier(name)} ${excess.join(" ")}`)
      })),
    ...installed.edges
      .filter(({ member }) => owners.includes(member))
      .map(({ grantor, member, role }): Found => ({
        code: "owner-member",
        object: member,
        found: `${member} is a member of ${role}`,
        expected: "a member of no role",
        sql: transaction(revokeMembership(role, member, grantor))
      }))
  ]
}

/** @internal From 16 on a membership belongs to its grantor. */
export const revokeMembership = (role: string, member: string, grantor: string | null): string =>
  `revoke ${quoteIdentifier(role)} from ${quoteIdentifier(member)}` +
  (grantor === null ? "" : ` granted by ${quoteIdentifier(grantor)}`) +
  " cascade"

const attributesOfNobody = ["nosuperuser", "nobypassrls", "noreplication"]

/**
 * The roles that hold capabilities: there, none of the owners, and bound by their grants.
 *
 * @internal
 */
export const checkBindings: Check = (subject) => {
  const { bindings = [], installed, schema } = subject
  const unbind = (role: string) =>
    transaction(
      ...actingAs(
        installed.tablesOwner,
        `delete from ${quoteIdentifier(schema)}.role_bindings where role = '${role.replaceAll("'", "''")}'`
      )
    )
  return [...new Set(bindings.map(({ role }) => role))].flatMap((name): ReadonlyArray<Found> => {
    const capabilities = bindings.filter(({ role }) => role === name).map(({ capability }) => capability)
    const role = installed.roles.find((one) => one.name === name)
    const bound = `${capabilities.join(", ")} bound to ${name}`
    if (role === undefined) {
      return [
        {
          code: "binding-role-missing",
          object: name,
          found: `${bound}, which does not exist`,
          expected: "bindings of roles that exist",
          sql: unbind(name)
        }
      ]
    }
    if (isStrict(subject) && (name === installed.tablesOwner || name === installed.routinesOwner)) {
      return [
        { code: "binding-owner", object: name, found: bound, expected: "owners hold no capability", sql: unbind(name) }
      ]
    }
    const excess = role.excess.filter((attribute) => attributesOfNobody.includes(attribute))
    return excess.length === 0
      ? []
      : [
          {
            code: "binding-attributes",
            object: name,
            found: `${bound}, without ${excess.join(", ")}`,
            expected: excess.join(" "),
            sql: transaction(`alter role ${quoteIdentifier(name)} ${excess.join(" ")}`)
          }
        ]
  })
}
