import { Effect, Redacted, type Scope } from "effect"
import * as Crypto from "node:crypto"
import * as Pg from "pg"
import { inject } from "vitest"

/** The rows of one statement, on a connection of its own user's choosing. */
export interface Session {
  readonly rows: (sql: string, values?: ReadonlyArray<unknown>) => Effect.Effect<ReadonlyArray<Record<string, unknown>>>
  /** One message of many statements, by the simple protocol, as `psql` or a migration tool sends it. */
  readonly script: (sql: string) => Effect.Effect<void, Pg.DatabaseError>
}

export const connect = (url: string): Effect.Effect<Session, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const client = new Pg.Client({ connectionString: url })
      client.on("error", () => {})
      await client.connect()
      return client
    }),
    (client) => Effect.promise(() => client.end())
  ).pipe(
    Effect.map((client) => ({
      rows: (sql, values = []) =>
        Effect.promise(async () => (await client.query<Record<string, unknown>>(sql, [...values])).rows),
      script: (sql) =>
        Effect.tryPromise({
          try: () => client.query(sql),
          catch: (cause) => {
            if (cause instanceof Pg.DatabaseError) return cause
            throw cause
          }
        })
    }))
  )

const freshName = (): string => `awa_test_${Crypto.randomBytes(6).toString("hex")}`

const at = (url: string, part: { database?: string; user?: string; password?: string }): string => {
  const parsed = new URL(url)
  if (part.database !== undefined) parsed.pathname = `/${part.database}`
  if (part.user !== undefined) parsed.username = part.user
  if (part.password !== undefined) parsed.password = part.password
  return parsed.href
}

/** A database and a plain role without any attribute, both gone with the scope. */
export interface Fresh {
  readonly url: string
  readonly redacted: Redacted.Redacted
  readonly database: string
  /** The same database, as the plain role. */
  readonly plain: { readonly role: string; readonly url: string; readonly redacted: Redacted.Redacted }
  /** A session of the superuser. */
  readonly admin: Session
}

export const freshDatabase: Effect.Effect<Fresh, never, Scope.Scope> = Effect.gen(function* () {
  const server = inject("postgresUrl")
  const root = yield* connect(server)
  const database = freshName()
  const role = `${database}_role`
  const password = Crypto.randomBytes(12).toString("hex")
  yield* Effect.acquireRelease(root.rows(`create role ${role} login password '${password}'`), () =>
    root.rows(`drop role ${role}`)
  )
  yield* Effect.acquireRelease(root.rows(`create database ${database}`), () =>
    root.rows(`drop database ${database} with (force)`)
  )
  const url = at(server, { database })
  const plainUrl = at(url, { user: role, password })
  return {
    url,
    redacted: Redacted.make(url),
    database,
    plain: { role, url: plainUrl, redacted: Redacted.make(plainUrl) },
    admin: yield* connect(url)
  }
})

const catalog = `
select jsonb_build_object('what', 'schema', 'owner', n.nspowner::regrole::text, 'acl', n.nspacl::text) as line, n.xmin::text
from pg_namespace n where n.nspname = $1
union all
select jsonb_build_object('what', 'relation', 'name', c.relname, 'kind', c.relkind, 'owner', c.relowner::regrole::text,
         'acl', c.relacl::text, 'options', c.reloptions, 'view', case when c.relkind = 'v' then pg_get_viewdef(c.oid) end,
         'index', case when c.relkind = 'i' then pg_get_indexdef(c.oid) end,
         'columns', (select jsonb_agg(jsonb_build_array(a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
                                                        pg_get_expr(d.adbin, d.adrelid)) order by a.attnum)
                     from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
                     where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped)), c.xmin::text
from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1
union all
select jsonb_build_object('what', 'constraint', 'name', o.conname, 'on', o.conrelid::regclass::text,
         'is', pg_get_constraintdef(o.oid)), o.xmin::text
from pg_constraint o join pg_namespace n on n.oid = o.connamespace where n.nspname = $1
union all
select jsonb_build_object('what', 'type', 'name', t.typname, 'kind', t.typtype, 'acl', t.typacl::text,
         'labels', (select jsonb_agg(e.enumlabel order by e.enumsortorder) from pg_enum e where e.enumtypid = t.oid)),
       t.xmin::text
from pg_type t join pg_namespace n on n.oid = t.typnamespace where n.nspname = $1
union all
select jsonb_build_object('what', 'sequence', 'name', s.seqrelid::regclass::text, 'type', s.seqtypid::regtype::text,
         'start', s.seqstart, 'min', s.seqmin, 'max', s.seqmax, 'cache', s.seqcache, 'last', pg_sequence_last_value(s.seqrelid)),
       s.xmin::text
from pg_sequence s join pg_class c on c.oid = s.seqrelid join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1
union all
select jsonb_build_object('what', 'routine', 'owner', p.proowner::regrole::text, 'acl', p.proacl::text,
         'definition', pg_get_functiondef(p.oid)), p.xmin::text
from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = $1
union all
select jsonb_build_object('what', 'object', 'is', pg_describe_object(d.classid, d.objid, d.objsubid)), d.xmin::text
from pg_depend d join pg_namespace n on d.refclassid = 'pg_namespace'::regclass and d.refobjid = n.oid where n.nspname = $1
order by 1`

/** What is installed, comparable: between databases as definitions, within one also as `xmin`, who wrote it last. */
export const catalogOf = (session: Session, schema: string, options: { readonly writers: boolean }) =>
  session
    .rows(catalog, [schema])
    .pipe(
      Effect.map((rows) =>
        rows.map((row) => JSON.stringify(options.writers ? [row["line"], row["xmin"]] : row["line"]))
      )
    )

/** Every routine that PUBLIC may execute, and `schema` when PUBLIC may use that. */
export const publicPrivileges = (session: Session, schema: string) =>
  session.rows(
    `select p.proname::text as name from pg_proc p join pg_namespace n on n.oid = p.pronamespace,
       lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
     where n.nspname = $1 and a.grantee = 0
     union all
     select 'schema' from pg_namespace n, lateral aclexplode(n.nspacl) a where n.nspname = $1 and a.grantee = 0`,
    [schema]
  )
