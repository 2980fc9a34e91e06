import { awaCommand } from "./awaCommand.js"
import { type Capability, finalizerCapabilities, manifest, unfold } from "./manifest.js"
import { actAs, exactPrivileges } from "./privileges.js"
import { quoteIdentifier, quoteLiteral, type RenderOptions } from "./renderSql.js"
import type { Facts } from "./rolesLook.js"

/** @internal Names that were checked, durations in milliseconds. */
export interface RolesTarget {
  readonly schema: string
  /** Undefined: the compatible profile. */
  readonly strict:
    { readonly schemaOwner: string; readonly executionOwner: string; readonly migrator: string } | undefined
  readonly bindings: ReadonlyArray<{ readonly capability: Capability; readonly role: string }>
  readonly finalizerMillis:
    { readonly statement: number; readonly idleInTransaction: number; readonly lock: number } | undefined
}

/** @internal Both parts of a plan: who administers roles runs the one, who owns the schema the other. */
export interface RolesScript {
  readonly roles: ReadonlyArray<string>
  readonly privileges: ReadonlyArray<string>
}

const ownerAttributes = "nologin nosuperuser nocreatedb nocreaterole nobypassrls noreplication"

const distinct = (names: ReadonlyArray<string>): ReadonlyArray<string> => [...new Set(names)]

/** Nothing keeps it from anything: it needs no membership, and none would tell more. */
const isSuperuser = ({ roles }: Facts, name: string): boolean =>
  roles.find((role) => role.name === name)?.excess.includes("nosuperuser") === true

/** @internal Every role that a plan names. */
export const namedRoles = ({ bindings, strict }: RolesTarget): ReadonlyArray<string> =>
  distinct([
    ...(strict === undefined ? [] : [strict.schemaOwner, strict.executionOwner, strict.migrator]),
    ...bindings.map(({ role }) => role)
  ])

/** What somebody else put here: handed over, it would run as the execution owner. */
const foreignTo = (facts: Facts, strict: RolesTarget["strict"]): ReadonlyArray<string> => {
  const ring = facts.ring ?? 0
  const known = new Set([
    ...manifest.relations.flatMap((relation) => unfold(relation, ring)).map(({ name }) => name),
    ...manifest.routines
      .flatMap((routine) => unfold(routine, ring))
      .map(({ arguments: types, name }) => `${name}(${types})`)
  ])
  const owners = [facts.tablesOwner, facts.routinesOwner, strict?.schemaOwner, strict?.executionOwner]
  return [
    ...facts.objects
      .filter(({ name, owner }) => !known.has(name) || !owners.includes(owner))
      .map(({ object }) => object),
    ...facts.hooks
  ]
}

/** @internal What a plan cannot change by itself; the rule that is broken. */
export const refusalOf = ({ bindings, schema, strict }: RolesTarget, facts: Facts): string | undefined => {
  if (facts.schemaOwner === null || facts.ring === null || facts.ring === 0) {
    return `nothing is installed in this schema; run ${awaCommand("migrate", schema)} first`
  }
  const foreign = foreignTo(facts, strict)
  if (foreign.length > 0) {
    return `not of this installation, and not to be handed over with it: ${foreign.slice(0, 5).join(", ")}${foreign.length > 5 ? ` and ${foreign.length - 5} more` : ""}`
  }
  if (strict === undefined) {
    return facts.routinesOwner === facts.tablesOwner
      ? undefined
      : "the routines of this installation have an owner of their own: it is of the strict profile"
  }
  const { executionOwner, migrator, schemaOwner } = strict
  if (distinct([executionOwner, migrator, schemaOwner]).length < 3) {
    return "schema owner, execution owner and migrator are three roles"
  }
  const roleOf = (name: string) => facts.roles.find((role) => role.name === name)
  for (const owner of [schemaOwner, executionOwner]) {
    if (bindings.some(({ role }) => role === owner)) return `${owner} owns: no capability can be bound to it`
    const found = roleOf(owner)
    if (found === undefined) continue
    if (found.excess.length > 0) return `${owner} exists and is more than an owner may be: ${found.excess.join(", ")}`
    const others = found.members.filter(({ name }) => name !== migrator)
    if (others.length > 0) {
      return `${others.map(({ name }) => name).join(", ")} can be ${owner}, or has what it has: revoke that membership`
    }
    if (facts.major >= 16 && found.members.some(({ inherits }) => inherits)) {
      return `${migrator} inherits from ${owner} by a grant of somebody else: revoke that membership`
    }
    if (found.memberOf.length > 0) return `${owner} is a member of ${found.memberOf.join(", ")}; an owner is of none`
  }
  if (facts.major < 16 && roleOf(migrator)?.inherits === true && !isSuperuser(facts, migrator)) {
    return `${migrator} inherits, and this server (15) has no memberships without; alter role ${quoteIdentifier(migrator)} noinherit`
  }
  return undefined
}

const roleStatements = (target: RolesTarget, facts: Facts): ReadonlyArray<string> => {
  const { bindings, finalizerMillis, strict } = target
  const roleOf = (name: string) => facts.roles.find((role) => role.name === name)
  const isMissing = (name: string) => roleOf(name) === undefined
  const owners = strict === undefined ? [] : [strict.schemaOwner, strict.executionOwner]
  const finalizers = distinct(
    bindings.filter(({ capability }) => finalizerCapabilities.includes(capability)).map(({ role }) => role)
  )
  return [
    ...owners.filter(isMissing).map((name) => `create role ${quoteIdentifier(name)} ${ownerAttributes} noinherit`),
    ...namedRoles(target)
      .filter((name) => isMissing(name) && !owners.includes(name))
      .map((name) => `create role ${quoteIdentifier(name)} nologin`),
    ...(strict === undefined || isSuperuser(facts, strict.migrator)
      ? []
      : owners
          .filter((owner) => roleOf(strict.migrator)?.memberOf.includes(owner) !== true || facts.major >= 16)
          .map(
            (owner) =>
              `grant ${quoteIdentifier(owner)} to ${quoteIdentifier(strict.migrator)}` +
              (facts.major >= 16 ? " with inherit false, set true, admin false" : "")
          )),
    ...(finalizerMillis === undefined
      ? []
      : finalizers.flatMap((name) => {
          const set = (setting: string, millis: number) =>
            roleOf(name)?.settings.includes(setting) === true // somebody's own choice
              ? []
              : [`alter role ${quoteIdentifier(name)} set ${setting} = ${quoteLiteral(`${millis}ms`)}`]
          return [
            ...set("statement_timeout", finalizerMillis.statement),
            ...set("idle_in_transaction_session_timeout", finalizerMillis.idleInTransaction),
            ...set("lock_timeout", finalizerMillis.lock)
          ]
        }))
  ]
}

/** Ownership before any grant (C-51). CREATE is lent for it, and taken back by the privileges that follow. */
const ownership = (schema: string, strict: NonNullable<RolesTarget["strict"]>, facts: Facts): ReadonlyArray<string> => {
  const wrong = facts.objects.filter(({ owner, runs }) => owner !== (runs ? strict.executionOwner : strict.schemaOwner))
  const isSchemaOwned = facts.schemaOwner === strict.schemaOwner
  if (wrong.length === 0 && isSchemaOwned) return []
  const [owner, execution] = [quoteIdentifier(strict.schemaOwner), quoteIdentifier(strict.executionOwner)]
  const lend = `grant usage, create on schema ${schema} to ${owner}, ${execution}`
  return [
    ...(isSchemaOwned ? [actAs(strict.schemaOwner).trim(), lend, "reset role"] : [lend]),
    ...wrong.map(({ object, runs }) => `alter ${object} owner to ${runs ? execution : owner}`),
    ...(isSchemaOwned ? [] : [`alter schema ${schema} owner to ${owner}`])
  ].map((statement) => statement.replace(/;$/, ""))
}

const bind = (schema: string, { bindings }: RolesTarget): ReadonlyArray<string> => {
  const rows = bindings.map(({ capability, role }) => `(${quoteLiteral(capability)}, ${quoteLiteral(role)})`)
  const table = `${schema}.role_bindings`
  return rows.length === 0
    ? [`delete from ${table}`]
    : [
        `delete from ${table} where (capability, role) not in (values ${rows.join(", ")})`,
        `insert into ${table} (capability, role) values ${rows.join(", ")} on conflict (capability, role) do nothing`
      ]
}

/** @internal */
export const makeRolesScript = (target: RolesTarget, facts: Facts): RolesScript => {
  const schema = quoteIdentifier(target.schema)
  const render: RenderOptions = { schema: target.schema, ring: facts.ring ?? 0 }
  const { strict } = target
  const exact = exactPrivileges(render).trim().replace(/;$/, "")
  const tablesOwner = facts.tablesOwner ?? facts.me
  const become = (role: string) => actAs(role).trim().replace(/;$/, "")
  return {
    roles: roleStatements(target, facts),
    privileges:
      strict === undefined
        ? [...(tablesOwner === facts.me ? [] : [become(tablesOwner)]), ...bind(schema, target), exact]
        : [
            ...ownership(schema, strict, facts),
            become(strict.schemaOwner),
            ...bind(schema, target),
            exact,
            become(strict.executionOwner),
            exact
          ]
  }
}
