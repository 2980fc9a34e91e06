import { quoteIdentifier } from "../renderSql.js"
import type { Code } from "./codes.js"
import type { Found } from "./finding.js"
import type { Edge } from "./look.js"
import { revokeMembership } from "./objects.js"
import { type Check, isStrict, type Subject, transaction } from "./subject.js"

/** What a membership lets its member do with the role: nothing at all, from 16 on, when every option is false. */
const powers = ({ admin, inherit, set }: Edge): string =>
  [set && "SET", inherit && "INHERIT", admin && "ADMIN"].filter((power) => power !== false).join(", ")

/** The migrator's own way: SET, so that nothing is inherited that was not asked for, and nothing passed on. */
const isMigrators = ({ admin, inherit, set }: Edge): boolean => set && !inherit && !admin

interface Migrator {
  readonly name: string | undefined
  readonly unclear: ReadonlyArray<string>
}

/** @internal Who is taken for the migrator. */
export const migratorName = (subject: Subject): string | undefined =>
  isStrict(subject) ? migratorOf(subject).name : undefined

/**
 * Who the migrator is, where it was not said: the role that asks, or else the only one, that has its way to both owners. Who
 * holds a capability is an application.
 */
const migratorOf = ({ bindings = [], installed, migrator }: Subject): Migrator => {
  if (migrator !== undefined) return { name: migrator, unclear: [] }
  const to = (owner: string) => installed.edges.filter(({ role, set }) => role === owner && set)
  const both = to(installed.tablesOwner)
    .map(({ member }) => member)
    .filter((member) => to(installed.routinesOwner).some((edge) => edge.member === member))
    .filter((member) => !bindings.some(({ role }) => role === member))
  const distinct = [...new Set(both)]
  if (distinct.includes(installed.me)) return { name: installed.me, unclear: [] }
  return distinct.length <= 1 ? { name: distinct[0], unclear: [] } : { name: undefined, unclear: distinct }
}

/**
 * Every role that comes to act as this one, or to have its privileges where those are enough, with the way it takes: SET needs a
 * role that is acted as, INHERIT and ADMIN one whose privileges are had.
 */
const reaching = (edges: ReadonlyArray<Edge>, start: Edge): ReadonlyArray<ReadonlyArray<string>> => {
  interface Way {
    readonly roles: ReadonlyArray<string>
    readonly acting: boolean
  }
  const ways: Array<ReadonlyArray<string>> = []
  const seen = new Set([start.member])
  let front: ReadonlyArray<Way> = [{ roles: [start.member], acting: !start.inherit && !start.admin }]
  while (front.length > 0) {
    front = front.flatMap(({ acting, roles }) =>
      edges
        .filter((edge) => edge.role === roles[0] && !seen.has(edge.member))
        .filter((edge) => (acting ? edge.set || edge.admin : powers(edge) !== ""))
        .map((edge) => {
          seen.add(edge.member)
          return { roles: [edge.member, ...roles], acting: !edge.admin && (acting || !edge.inherit) }
        })
    )
    ways.push(...front.map(({ roles }) => roles))
  }
  return ways
}

const codeOf = ({ admin, inherit, set }: Edge): Code | undefined =>
  set ? "role-set-path" : inherit ? "role-inherit-path" : admin ? "role-admin-path" : undefined

/**
 * Nobody but the migrator becomes an owner, at any depth (C-51, C-53). Each way is cut at its last membership, the one that leads
 * to an owner, to the migrator, or to the creator of an owner; the finding says who comes by it from how far.
 *
 * @internal
 */
export const checkRoleGraph: Check = (subject) => {
  if (!isStrict(subject)) return []
  const { installed, bindings = [] } = subject
  const owners = [installed.tablesOwner, installed.routinesOwner]
  const migrator = migratorOf(subject)
  const superusers = new Set(installed.roles.filter(({ superuser }) => superuser).map(({ name }) => name))
  const toOwners = installed.edges.filter(({ role }) => owners.includes(role))
  const creators = new Set(toOwners.filter(({ implicit }) => implicit).map(({ member }) => member))
  const guarded = new Map([
    ...(migrator.name === undefined ? [] : [[migrator.name, "the migrator"] as const]),
    ...[...creators].map((name) => [name, "the creator of an owner"] as const),
    ...owners.map(
      (name) => [name, name === owners[0] ? "the owner of the tables" : "the owner of the routines"] as const
    )
  ])
  const isOpen = (edge: Edge): boolean => {
    if (superusers.has(edge.member) || edge.implicit) return false
    if (!owners.includes(edge.role)) {
      // privileges of a migrator that inherits nothing are nothing; whoever can become it, or be let to, is another matter
      return creators.has(edge.role) ? powers(edge) !== "" : edge.set || edge.admin
    }
    return powers(edge) !== ""
  }
  const paths = installed.edges
    .filter(
      (edge) =>
        guarded.has(edge.role) &&
        !owners.includes(edge.member) &&
        edge.member !== migrator.name &&
        !migrator.unclear.includes(edge.member) &&
        isOpen(edge)
    )
    .flatMap((edge): ReadonlyArray<Found> => {
      const code = codeOf(edge)
      if (code === undefined) return []
      const further = reaching(installed.edges, edge).filter(
        ([name = ""]) => !guarded.has(name) && !superusers.has(name)
      )
      const ways = [[edge.member], ...further].map((way) => [...way, edge.role].join(" → "))
      return [
        {
          code,
          object: edge.member,
          found: `${ways.join("; ")}, by ${powers(edge)}; ${edge.role} is ${guarded.get(edge.role) ?? ""}`,
          expected: "nobody but the migrator, and it by SET alone",
          sql: transaction(revokeMembership(edge.role, edge.member, edge.grantor))
        }
      ]
    })
  const ofMigrator = toOwners
    .filter(
      (edge) => edge.member === migrator.name && !edge.implicit && !isMigrators(edge) && !superusers.has(edge.member)
    )
    .map((edge): Found => ({
      code: edge.admin ? "role-admin-path" : "role-migrator-inherits",
      object: edge.member,
      found: `${edge.member} → ${edge.role}, by ${powers(edge)}`,
      expected: "SET alone: INHERIT FALSE, ADMIN FALSE",
      sql: transaction(mendMigrator(edge, installed.major))
    }))
  return [
    ...paths,
    // on 15 what mends the one mends the other
    ...ofMigrator.filter(({ sql }, index) => ofMigrator.findIndex((other) => other.sql === sql) === index),
    ...toOwners
      .filter(({ implicit }) => implicit)
      .map(({ grantor, member, role }): Found => ({
        code: "role-creator-admin",
        object: member,
        found: `${member} created ${role}, and may grant it for that`,
        expected: "known; a superuser can take it away",
        sql: transaction(revokeMembership(role, member, grantor))
      })),
    ...(migrator.unclear.length === 0
      ? []
      : [
          {
            code: "role-migrator-unclear",
            object: "the migrator",
            found: migrator.unclear.join(", "),
            expected: "one role with a way to both owners",
            advice: "say which one by `--migrator`; the others are found then"
          } as const
        ]),
    ...(installed.major >= 16
      ? []
      : installed.roles
          .filter(({ creates, name, superuser }) => creates && !superuser && bindings.some(({ role }) => role === name))
          .map(({ name }): Found => ({
            code: "role-creates",
            object: name,
            found: `${name} is bound, and has CREATEROLE`,
            expected: "nocreaterole",
            sql: transaction(`alter role ${quoteIdentifier(name)} nocreaterole`)
          })))
  ]
}

/** From 16 on the options of the membership; before that, the member's own attribute. */
const mendMigrator = (edge: Edge, major: number): string => {
  const [role, member] = [quoteIdentifier(edge.role), quoteIdentifier(edge.member)]
  const by = edge.grantor === null ? "" : ` granted by ${quoteIdentifier(edge.grantor)}`
  if (major >= 16) {
    return `grant ${role} to ${member} with set true, inherit false, admin false${by}`
  }
  return edge.admin ? `revoke admin option for ${role} from ${member} cascade` : `alter role ${member} noinherit`
}
