import { createHash } from "node:crypto"
import { actAs, exactPrivileges } from "./privileges.js"
import { lockKeyPrefix, quoteIdentifier, quoteLiteral, type RenderOptions, renderSql } from "./renderSql.js"
import { closing, functions, functionsRevision, migrations } from "./schemaText.generated.js"

/** @internal One piece of a migration: sent as one message, reported under its name. */
export interface Step {
  readonly name: string
  readonly sql: string
}

/** @internal Whose an installation is, where it is not simply the migrator's: the strict profile (C-51). */
export interface Owners {
  readonly tables: string
  readonly routines: string
}

const versionOf = (file: string): number => Number.parseInt(file, 10)

/** @internal The schema version that this library installs: the number of its newest migration. */
export const latestVersion = Math.max(...migrations.map((migration) => versionOf(migration.name)))

const steps = (
  templates: ReadonlyArray<{ readonly name: string; readonly text: string }>,
  target: RenderOptions
): ReadonlyArray<Step> => templates.map(({ name, text }) => ({ name, sql: renderSql(text, target) }))

/** @internal The migrations after a version, in order. */
export const migrationSteps = (target: RenderOptions, from: number): ReadonlyArray<Step> =>
  steps(
    migrations.filter((migration) => versionOf(migration.name) > from),
    target
  )

const routineSteps = (target: RenderOptions): ReadonlyArray<Step> => steps(functions, target)

const closingSteps = (target: RenderOptions): ReadonlyArray<Step> => steps(closing, target)

/** @internal What `meta.rendered_hash` says when the functions are these: SHA-256 in hex. */
export const renderedHash = (target: RenderOptions): string => {
  const hash = createHash("sha256").update(`version ${latestVersion}\n`)
  for (const step of [...routineSteps(target), ...closingSteps(target)]) hash.update(step.sql)
  return hash.update(exactPrivileges(target)).digest("hex")
}

/** @internal The revision of the functions that are installed, of whatever version: the column is younger than the table. */
export const revisionOf = (meta: string): string => `coalesce((to_jsonb(${meta}) ->> 'functions_revision')::integer, 0)`

/** @internal How long the server may take, in milliseconds. */
export const limits = { statement: 60_000, lock: 10_000, idle: 60_000, transaction: 900_000 }

/**
 * The beginning of the transaction. Whatever the role, the database or the pooler set, these are the settings that hold.
 *
 * @internal
 */
export const begin = (lockMillis: number): string =>
  `begin isolation level read committed read write;
set local standard_conforming_strings = on;
set local search_path = pg_catalog, pg_temp;
set local quote_all_identifiers = off;
set local client_min_messages = warning;
set local check_function_bodies = on;
set local row_security = off;
set local synchronous_commit = on;
set local lock_timeout = ${lockMillis};
set local statement_timeout = ${lockMillis + limits.statement};
set local idle_in_transaction_session_timeout = ${limits.idle};
do $$ begin  -- a parameter of PostgreSQL 17 and later
  if current_setting('transaction_timeout', true) is not null then
    perform set_config('transaction_timeout', '${lockMillis + limits.transaction}', true);
  end if;
end $$;
`

/** @internal One migrator at a time (F-39), and nothing is looked at before. Released by the end of the transaction. */
export const lock = (schema: string): string =>
  `select pg_advisory_xact_lock(hashtextextended(${quoteLiteral(lockKeyPrefix(schema, "migrate"))}, 0));
`

/** @internal */
export const boundStatements = `set local lock_timeout = ${limits.lock};
set local statement_timeout = ${limits.statement};
`

/** @internal */
export const createSchema = (target: RenderOptions): Step => ({
  name: "create schema",
  sql: renderSql("create schema {{schema}};\n", target)
})

/** @internal What is seen to even where nothing else is to be done. */
export const privilegeSteps = (target: RenderOptions, owners?: Owners): ReadonlyArray<Step> => {
  const privileges: Step = { name: "privileges", sql: exactPrivileges(target) }
  return owners === undefined
    ? [privileges]
    : [privileges, { name: "act as owner", sql: actAs(owners.routines) }, privileges]
}

/** `meta` says what is installed now. */
const metaStep = (target: RenderOptions): Step => ({
  name: "meta",
  sql: renderSql(
    `update {{schema}}.meta set schema_version = ${latestVersion}, functions_revision = ${functionsRevision}, rendered_hash = '${renderedHash(target)}';\n`,
    target
  )
})

/**
 * What every installation, upgrade and refresh ends with: all functions and views, created or replaced; what is said again of
 * tables; and the privileges. PUBLIC's EXECUTE, which every new function starts with, ends before anybody sees it (C-50).
 *
 * In the strict profile the owner of the routines may create in the schema for as long as this takes, and each does its part.
 *
 * @internal
 */
export const replacementSteps = (target: RenderOptions, owners?: Owners): ReadonlyArray<Step> => {
  const privileges: Step = { name: "privileges", sql: exactPrivileges(target) }
  if (owners === undefined) return [...routineSteps(target), ...closingSteps(target), privileges, metaStep(target)]
  const become = (role: string): Step => ({ name: "act as owner", sql: actAs(role) })
  const schema = quoteIdentifier(target.schema)
  const lend: Step = {
    name: "lend CREATE",
    sql: `grant create on schema ${schema} to ${quoteIdentifier(owners.routines)};\n`
  }
  return [
    lend,
    become(owners.routines),
    ...routineSteps(target),
    become(owners.tables),
    ...closingSteps(target),
    privileges, // and CREATE is taken back
    metaStep(target),
    become(owners.routines),
    privileges
  ]
}

/**
 * Whether anything is inside the schema: whatever is in a schema depends on it. Default privileges and publications are
 * about what will be in it. `$1` is the schema's name.
 *
 * @internal
 */
export const isOccupied = (name: string): string =>
  `exists (
    select from pg_depend d join pg_namespace n on d.refobjid = n.oid
    where d.refclassid = 'pg_namespace'::regclass and n.nspname = ${name}
      and d.classid not in ('pg_default_acl'::regclass, 'pg_publication_namespace'::regclass))`

const guardInstall = `do $$
begin
  if not exists (select from pg_namespace n where n.nspname = {{schema_name}}) then
    create schema {{schema}};
  elsif ${isOccupied("{{schema_name}}")} then
    raise exception using errcode = '55000', message = format('schema %I is not empty', {{schema_name}}),
      hint = 'This script installs effect-awa from nothing. Print the rest of a newer version with: awa migrate --print --from N';
  end if;
end $$;
`

const guardUpgrade = (from: number): string =>
  `do $$
declare
  v_meta record;
begin
  select m.product, m.schema_version, m.ring_size, ${revisionOf("m")} as revision into strict v_meta from {{schema}}.meta m;
  if v_meta.product <> 'effect-awa' or v_meta.schema_version <> ${from} or v_meta.ring_size <> {{ring}} then
    raise exception using errcode = '55000',
      message = format('this script is for version ${from} with a ring of {{ring}}, but schema %I is at version %s with a ring of %s',
                       {{schema_name}}, v_meta.schema_version, v_meta.ring_size);
  end if;
  if v_meta.revision > ${functionsRevision} then
    raise exception using errcode = '55000', message = format('schema %I has the functions of a later release', {{schema_name}});
  end if;
  if exists (select from pg_class c where c.oid = to_regclass(format('%I.meta', {{schema_name}})) and c.relowner <> current_user::regrole)
     or exists (select from pg_proc p where p.pronamespace = {{schema_name}}::regnamespace and p.prosecdef and p.proowner <> current_user::regrole) then
    raise exception using errcode = '55000', message = format('schema %I belongs to another role', {{schema_name}}),
      hint = 'Run this script as its owner; an installation of the strict profile is upgraded by awa migrate.';
  end if;
end $$;
`

/**
 * The whole migration as one script, the same text for the same options, always.
 *
 * @internal
 */
export const makeScript = (target: RenderOptions, from: number, lockMillis: number): string => {
  const guard = renderSql(from === 0 ? guardInstall : guardUpgrade(from), target)
  const title =
    from === 0
      ? `installs schema version ${latestVersion} from nothing`
      : `brings schema version ${from} to ${latestVersion}`
  return [
    `-- effect-awa: ${title}. One transaction, its own; no psql commands.\n`,
    begin(lockMillis),
    lock(target.schema),
    boundStatements,
    guard,
    ...[...migrationSteps(target, from), ...replacementSteps(target)].map((step) => `-- ${step.name}\n${step.sql}`),
    "commit;\n"
  ].join("\n")
}
