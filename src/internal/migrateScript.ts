import { createHash } from "node:crypto"
import { lockKeyPrefix, quoteLiteral, type RenderOptions, renderSql } from "./renderSql.js"
import { functions, migrations } from "./schemaText.generated.js"

/** @internal One piece of a migration: sent as one message, reported under its name. */
export interface Step {
  readonly name: string
  readonly sql: string
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

/** @internal All functions and views, create or replace. */
export const functionSteps = (target: RenderOptions): ReadonlyArray<Step> => steps(functions, target)

/** @internal What `meta.rendered_hash` says when the functions are these: SHA-256 in hex. */
export const renderedHash = (target: RenderOptions): string => {
  const hash = createHash("sha256").update(`version ${latestVersion}\n`)
  for (const step of functionSteps(target)) hash.update(step.sql)
  return hash.digest("hex")
}

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

/**
 * PUBLIC's EXECUTE, which every new function starts with, ends before anybody sees it (C-50), whatever was replaced or
 * added. `meta` says what is installed now.
 *
 * @internal
 */
export const closingStep = (target: RenderOptions): Step => ({
  name: "privileges and meta",
  sql: renderSql(
    `revoke all on all routines in schema {{schema}} from public;
revoke all on schema {{schema}} from public;
update {{schema}}.meta set schema_version = ${latestVersion}, rendered_hash = '${renderedHash(target)}';
`,
    target
  )
})

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
  select m.product, m.schema_version, m.ring_size into strict v_meta from {{schema}}.meta m;
  if v_meta.product <> 'effect-awa' or v_meta.schema_version <> ${from} or v_meta.ring_size <> {{ring}} then
    raise exception using errcode = '55000',
      message = format('this script is for version ${from} with a ring of {{ring}}, but schema %I is at version %s with a ring of %s',
                       {{schema_name}}, v_meta.schema_version, v_meta.ring_size);
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
    ...[...migrationSteps(target, from), ...functionSteps(target)].map((step) => `-- ${step.name}\n${step.sql}`),
    closingStep(target).sql,
    "commit;\n"
  ].join("\n")
}
