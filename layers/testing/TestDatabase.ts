/**
 * A database of a test's own, cloned from a migrated template.
 *
 * @since 0.1.0
 */
import type * as SqlClient from "@effect/sql/SqlClient"
import type { SqlError } from "@effect/sql/SqlError"
import * as PgClient from "@effect/sql-pg/PgClient"
import type * as Config from "effect/Config"
import type * as ConfigError from "effect/ConfigError"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import { createHash, randomBytes } from "node:crypto"
import * as Pg from "pg"
import { InstalledSchema } from "../../src/InstalledSchema.js"
import { quoteIdentifier, quoteLiteral } from "../../src/internal/renderSql.js"
import { reasonOf } from "../../src/internal/sqlState.js"
import {
  closing,
  functions,
  manifestText,
  migrations,
  privilegesText
} from "../../src/internal/schemaText.generated.js"
import type { MigrationError } from "../../src/MigrationError.js"
import * as Migrations from "../../src/Migrations.js"
import * as Roles from "../../src/Roles.js"
import { passwordOf, strictRoles } from "./internal/strictRoles.js"

/**
 * The test's database could not be made.
 *
 * @since 0.1.0
 * @category errors
 */
export class TestDatabaseError extends Schema.TaggedError<TestDatabaseError>("effect-awa/TestDatabaseError")(
  "TestDatabaseError",
  {
    operation: Schema.String,
    cause: Schema.Defect
  }
) {
  override get message(): string {
    return `The test database: ${this.operation} failed: ${reasonOf(this.cause)}`
  }
}

/**
 * @since 0.1.0
 * @category services
 */
export class TestDatabase extends Context.Tag("effect-awa/TestDatabase")<
  TestDatabase,
  {
    /** As a superuser. */
    readonly url: Redacted.Redacted
    /** As the role of the runtime's pool; `url` itself in the compatible profile. */
    readonly runtimeUrl: Redacted.Redacted
    /** As the role of the application, which owns nothing; `url` itself in the compatible profile. */
    readonly applicationUrl: Redacted.Redacted
    readonly name: string
    /** The schema that effect-awa is installed in. */
    readonly schema: string
  }
>() {}

/**
 * @since 0.1.0
 * @category models
 */
export interface TestDatabaseOptions {
  /** A superuser's url to the server's `postgres` database, for instance an embedded server's. */
  readonly server: Config.Config<Redacted.Redacted>
  /** The schema that effect-awa is installed in; `awa`. */
  readonly schema?: string
  /** The number of segments of the ring; 4, the smallest: a clone is quicker the less there is in it. */
  readonly ring?: number
  /**
   * `strict`: the schema is installed with roles of least privilege (`Roles`), named `awa_test_*` on the server, and the worker of
   * `Testing.worker` runs as one of them; `compatible` unless said otherwise.
   */
  readonly profile?: "strict" | "compatible"
  /** Settings that every session in the database has unless its role or the session itself says otherwise: `TimeZone`, for instance. */
  readonly settings?: Readonly<Record<string, string>>
}

const attempt = <A>(operation: string, run: () => Promise<A>): Effect.Effect<A, TestDatabaseError> =>
  Effect.tryPromise({ try: run, catch: (cause) => new TestDatabaseError({ operation, cause }) })

const connect = (url: string): Effect.Effect<Pg.Client, TestDatabaseError, Scope.Scope> =>
  Effect.acquireRelease(
    attempt("connect", async () => {
      const client = new Pg.Client({ connectionString: url, application_name: "effect-awa testing" })
      client.on("error", () => {})
      await client.connect()
      return client
    }),
    (client) => Effect.promise(() => client.end().catch(() => undefined))
  )

const inDatabase = (url: string, database: string): string => {
  const changed = new URL(url)
  changed.pathname = `/${encodeURIComponent(database)}`
  return changed.toString()
}

const asRole = (url: string, role: string, password: string): string => {
  const changed = new URL(url)
  changed.username = role
  changed.password = password
  return changed.toString()
}

type Query = (sql: string, values?: ReadonlyArray<unknown>) => Effect.Effect<Pg.QueryResult, TestDatabaseError>

const makeStrict = (query: Query, server: string, url: Redacted.Redacted, schema: string) =>
  Effect.gen(function* () {
    const { application, runtime } = strictRoles
    yield* Roles.apply({
      url,
      schema,
      profile: "strict",
      schemaOwner: "awa_test_owner",
      executionOwner: "awa_test_execution",
      bindings: {
        producer: [application],
        finalizer: [application],
        batch_finalizer: [application],
        expectation: [application],
        callback: [application],
        executor: [runtime],
        maintenance: [runtime]
      },
      finalizerTimeouts: false
    })
    for (const role of [application, runtime]) {
      yield* query(`alter role ${role} login password '${passwordOf(server)}'`)
    }
  })

/** One template for a schema's text, its name and its ring; made once on a server, under a lock, whoever comes first. */
const template = (url: string, admin: Pg.Client, schema: string, ring: number, profile: "strict" | "compatible") =>
  Effect.gen(function* () {
    const text = JSON.stringify([schema, ring, profile, migrations, functions, closing, privilegesText, manifestText])
    const name = `awa_template_${createHash("sha256").update(text).digest("hex").slice(0, 16)}`
    const query = (sql: string, values: ReadonlyArray<unknown> = []) =>
      attempt("template", () => admin.query(sql, [...values]))
    const exists = Effect.map(
      query("select from pg_database where datname = $1", [name]),
      (result) => result.rowCount === 1
    )
    yield* Effect.acquireUseRelease(
      query("select pg_advisory_lock(hashtextextended('effect-awa/testing', 0))"),
      () =>
        Effect.gen(function* () {
          if (yield* exists) return
          const draft = `${name}_draft`
          yield* query(`drop database if exists ${quoteIdentifier(draft)} with (force)`)
          yield* query(`create database ${quoteIdentifier(draft)} template template0`)
          const inDraft = Redacted.make(inDatabase(url, draft))
          yield* Migrations.migrate({ url: inDraft, schema, ring })
          if (profile === "strict") yield* makeStrict(query, url, inDraft, schema)
          yield* query(`alter database ${quoteIdentifier(draft)} rename to ${quoteIdentifier(name)}`)
        }),
      () => Effect.ignore(query("select pg_advisory_unlock(hashtextextended('effect-awa/testing', 0))"))
    )
    return name
  })

/**
 * A fresh database, dropped when the scope closes.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = Effect.fnUntraced(function* (
  options: TestDatabaseOptions
): Effect.fn.Return<
  TestDatabase["Type"],
  TestDatabaseError | MigrationError | Roles.RolesError | ConfigError.ConfigError,
  Scope.Scope
> {
  const server = Redacted.value(yield* options.server)
  const schema = options.schema ?? "awa"
  const admin = yield* connect(server)
  const profile = options.profile ?? "compatible"
  const source = yield* template(server, admin, schema, options.ring ?? 4, profile)
  const name = `awa_test_${randomBytes(6).toString("hex")}`
  yield* Effect.acquireRelease(
    attempt("create", () =>
      admin.query(`create database ${quoteIdentifier(name)} template ${quoteIdentifier(source)}`)
    ),
    () =>
      Effect.ignoreLogged(
        attempt("drop", () => admin.query(`drop database if exists ${quoteIdentifier(name)} with (force)`))
      )
  )
  for (const [setting, value] of Object.entries(options.settings ?? {})) {
    yield* attempt(`alter database set ${setting}`, () =>
      admin.query(
        `alter database ${quoteIdentifier(name)} set ${quoteIdentifier(setting.toLowerCase())} = ${quoteLiteral(value)}`
      )
    )
  }
  const url = inDatabase(server, name)
  yield* Effect.scoped(
    Effect.gen(function* () {
      const client = yield* connect(url)
      const quoted = quoteIdentifier(schema)
      // A clone is a copy like any other: tokens of the template must not match here. And its segment is as old as the clone: a
      // template that was made long ago must not be rotated under the test. In the isolation that both need, whatever the default.
      yield* attempt("adopt", () =>
        client.query(
          `begin isolation level read committed; select ${quoted}.adopt_database();
           update ${quoted}.segments set opened_at = clock_timestamp() where state = 'open'; commit`
        )
      )
    })
  )
  const as = (role: string) => Redacted.make(profile === "strict" ? asRole(url, role, passwordOf(server)) : url)
  return {
    url: Redacted.make(url),
    runtimeUrl: as(strictRoles.runtime),
    applicationUrl: as(strictRoles.application),
    name,
    schema
  }
})

/**
 * A database of the test's own with the schema in it, and a client for the application's side of the test.
 *
 * @example
 * ```ts
 * import { Config } from "effect"
 * import { Testing } from "effect-awa/testing"
 *
 * export const Database = Testing.database({ server: Config.redacted("AWA_TEST_DATABASE_URL") })
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const database = (
  options: TestDatabaseOptions
): Layer.Layer<
  TestDatabase | PgClient.PgClient | SqlClient.SqlClient,
  TestDatabaseError | MigrationError | Roles.RolesError | ConfigError.ConfigError | SqlError
> => {
  const own = Layer.scoped(TestDatabase, make(options))
  const client = Layer.unwrapEffect(
    Effect.map(TestDatabase, ({ url }) => PgClient.layer({ url, maxConnections: 10, applicationName: "application" }))
  )
  const schema = Layer.effect(
    InstalledSchema,
    Effect.map(TestDatabase, (database) => database.schema)
  )
  return Layer.mergeAll(client, schema).pipe(Layer.provideMerge(own))
}
