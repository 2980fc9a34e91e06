/** An installation of the strict profile, made by a migrator without superuser, with one login role for each capability. */
import { Effect, Redacted, type Scope } from "effect"
import { Migrations, Roles } from "effect-awa"
import { finalizerCapabilities } from "../../src/internal/manifest.js"
import { connect, type Fresh, freshDatabase, type Session } from "../migrations/support.js"

export const capabilities = Roles.Capability.literals
type Capability = Roles.Capability

export interface Strict extends Fresh {
  readonly owners: { readonly schemaOwner: string; readonly executionOwner: string }
  /** The role that holds a capability, and no other one. */
  readonly roleOf: (capability: Capability) => string
  readonly options: Roles.RolesOptions
  /** A session of a role of this installation; `nobody` holds nothing. */
  readonly as: (role: string) => Effect.Effect<Session, never, Scope.Scope>
  /** Where such a role connects to. */
  readonly redactedAs: (role: string) => Redacted.Redacted
  readonly nobody: string
}

const password = "only-for-this-test"

export const ring = 4

export const strict = (schema = "awa", profile: "strict" | "compatible" = "strict") =>
  Effect.gen(function* () {
    const fresh = yield* freshDatabase
    const { admin, database, plain } = fresh
    const name = (what: string) => `${database}_${what}`
    const owners = { schemaOwner: name("owner"), executionOwner: name("exec") }
    const roles = [...capabilities, "nobody"].map(name)
    yield* Effect.addFinalizer(() =>
      Effect.gen(function* () {
        // the database goes afterwards, and whatever these own or were granted in it goes first
        const all = [...roles, owners.executionOwner, owners.schemaOwner]
        for (const role of [...all, plain.role]) yield* admin.rows(`drop owned by "${role}" cascade`)
        for (const role of all) yield* admin.rows(`drop role "${role}"`)
      }).pipe(Effect.catchAllCause(Effect.logError))
    )
    for (const role of roles) yield* admin.rows(`create role "${role}" login password '${password}'`)
    for (const role of Object.values(owners)) yield* admin.rows(`create role "${role}" nologin noinherit`)
    for (const setting of ["statement_timeout", "idle_in_transaction_session_timeout", "lock_timeout"]) {
      for (const finalizer of finalizerCapabilities) {
        yield* admin.rows(`alter role "${name(finalizer)}" set ${setting} = '30s'`) // what the part of the roles would set
      }
    }
    yield* admin.rows(`grant create on database ${database} to ${plain.role}`)
    yield* admin.rows(`alter role ${plain.role} noinherit`)
    const [server] = yield* admin.rows("select current_setting('server_version_num')::int >= 160000 as options")
    for (const owner of Object.values(owners)) {
      yield* admin.rows(
        `grant "${owner}" to ${plain.role}${server?.["options"] === true ? " with inherit false, set true, admin false" : ""}`
      )
    }
    yield* Migrations.migrate({ url: plain.redacted, schema, ring })
    const options: Roles.RolesOptions = {
      url: plain.redacted,
      schema,
      profile,
      part: "privileges",
      ...owners,
      bindings: Object.fromEntries(capabilities.map((capability) => [capability, [name(capability)]]))
    }
    yield* Roles.apply(options)
    const urlOf = (role: string) => {
      const url = new URL(fresh.url)
      url.username = role
      url.password = password
      return url.href
    }
    const strict: Strict = {
      ...fresh,
      owners,
      roleOf: name,
      options,
      nobody: name("nobody"),
      as: (role) => connect(urlOf(role)),
      redactedAs: (role) => Redacted.make(urlOf(role))
    }
    return strict
  })
