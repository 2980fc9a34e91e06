import * as Schema from "effect/Schema"
import { quoteIdentifier, quoteLiteral } from "../renderSql.js"
import type { Found } from "./finding.js"
import { actingAs, type Subject, transaction } from "./subject.js"

/** @internal Whose cluster and database this is, beside what `meta` says. */
export const identitySql = (
  quoted: string
): string => `select m.system_identifier::text as "storedSystem", m.database_oid::text as "storedDatabase",
  c.system_identifier::text as system, d.oid::text as database
from ${quoted}.meta m, pg_control_system() c, pg_database d where d.datname = current_database()`

/** @internal */
export const IdentityRow = Schema.Tuple(
  Schema.Struct({
    storedSystem: Schema.String,
    storedDatabase: Schema.String,
    system: Schema.String,
    database: Schema.String
  })
)

/** @internal What cannot be gone on from is worse than a copy that can. */
export const checkIdentity = (
  quoted: string,
  [{ database, storedDatabase, storedSystem, system }]: typeof IdentityRow.Type,
  fault: string | null
): ReadonlyArray<Found> => {
  if (fault !== null) {
    return [
      {
        code: "database-refused",
        object: "the database",
        found: fault,
        expected: "stored numbers that this server can go on from",
        sql: `select ${quoted}.rebase_storage();\n`,
        advice: "`awa storage rebase`; take the original out of use first, or unfinished jobs run in both"
      }
    ]
  }
  return storedSystem === system && storedDatabase === database
    ? []
    : [
        {
          code: "database-copied",
          object: "the database",
          found: `installed in cluster ${storedSystem}, database ${storedDatabase}`,
          expected: `cluster ${system}, database ${database}`,
          sql: `select ${quoted}.adopt_database();\n`,
          advice: "or start a runtime, which does the same"
        }
      ]
}

/** @internal A sequence that may not be read has no last value. `$1` is the schema's name. */
export const sequencesSql = `select c.relname::text as name, c.oid::regclass::text as object, s.seqcache::text as cache, s.seqincrement::text as increment, s.seqcycle as cycle,
  s.seqmax::text as max, s.seqtypid::regtype::text as type,
  case when has_sequence_privilege(c.oid, 'select') or has_sequence_privilege(c.oid, 'usage') then coalesce(pg_sequence_last_value(c.oid), 0)::text end as last
from pg_sequence s join pg_class c on c.oid = s.seqrelid join pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1 and has_schema_privilege(n.oid, 'usage') order by c.relname`

/** @internal */
export const SequenceRows = Schema.Array(
  Schema.Struct({
    name: Schema.String,
    object: Schema.String,
    cache: Schema.BigInt,
    increment: Schema.BigInt,
    cycle: Schema.Boolean,
    max: Schema.BigInt,
    type: Schema.String,
    last: Schema.NullOr(Schema.BigInt)
  })
)

const most = 9_223_372_036_854_775_807n

/** The caches that the order of batches and of segments rests on: one number at a time. */
const caches: Readonly<Record<string, bigint>> = { batch_seq: 1n, spill_positions: 1n, segment_cursor: 1n }

/** @internal */
export const checkSequences = ({ installed }: Subject, rows: typeof SequenceRows.Type): ReadonlyArray<Found> =>
  rows.flatMap(({ cache, cycle, increment, last, max, name, object, type }): ReadonlyArray<Found> => {
    const wanted = caches[name] ?? cache
    const said = (c: bigint, i: bigint, more: string) => `cache ${c}, increment ${i}, ${more}`
    const isRight = cache === wanted && increment === 1n && !cycle && max === most && type === "bigint"
    return [
      ...(isRight
        ? []
        : [
            {
              code: "sequence-settings",
              object: name,
              found: said(cache, increment, `${cycle ? "cycle" : "no cycle"}, ${type}, maximum ${max}`),
              expected: said(wanted, 1n, `no cycle, bigint, maximum ${most}`),
              sql: transaction(
                ...actingAs(
                  installed.tablesOwner,
                  `alter sequence ${object} as bigint increment by 1 maxvalue ${most} no cycle cache ${wanted}`
                )
              )
            } as const
          ]),
      ...(last !== null && last > max / 2n
        ? [
            {
              code: "sequence-headroom",
              object: name,
              found: `at ${last} of ${max}`,
              expected: "less than half used",
              advice: "somebody moved it: no installation gets there by counting; look for what calls setval"
            } as const
          ]
        : [])
    ]
  })

/** @internal Publications that hold tables of the ring and send TRUNCATE. `$1` is the schema's name. */
export const publicationsSql = `select p.pubname::text as name, p.puballtables as "all", p.pubinsert as insert, p.pubupdate as update, p.pubdelete as delete
from pg_publication p where p.pubtruncate and exists (
  select from pg_publication_tables t where t.pubname = p.pubname and t.schemaname = $1 and t.tablename ~ '_[0-9]+$')`

/** @internal */
export const PublicationRows = Schema.Array(
  Schema.Struct({
    name: Schema.String,
    all: Schema.Boolean,
    insert: Schema.Boolean,
    update: Schema.Boolean,
    delete: Schema.Boolean
  })
)

/** @internal */
export const checkPublications = (rows: typeof PublicationRows.Type): ReadonlyArray<Found> =>
  rows.map((row): Found => {
    const kept = (["insert", "update", "delete"] as const).filter((operation) => row[operation]).join(", ")
    return {
      code: "publication-truncate",
      object: row.name,
      found: `publication ${row.name}${row.all ? ", FOR ALL TABLES," : ""} publishes truncate`,
      expected: `publish = '${kept}'`,
      sql: transaction(`alter publication ${quoteIdentifier(row.name)} set (publish = ${quoteLiteral(kept)})`),
      advice: "or leave the schema out of the publication"
    }
  })

const enough = 10_000

/** @internal Counters that everybody may read. `$1` is the schema's name. */
export const statisticsSql = `select s.relname::text as name, s.relid::regclass::text as object, s.n_live_tup::text as live, s.n_mod_since_analyze::text as changed
from pg_stat_user_tables s where s.schemaname = $1 and s.n_mod_since_analyze > ${enough} and s.n_mod_since_analyze > s.n_live_tup / 2
  -- what is filled and truncated has plans that rest on no statistics
  and s.relname !~ '_[0-9]+$' order by 1`

/** @internal */
export const StatisticsRows = Schema.Array(
  Schema.Struct({ name: Schema.String, object: Schema.String, live: Schema.String, changed: Schema.String })
)

/** @internal */
export const checkStatistics = (rows: typeof StatisticsRows.Type): ReadonlyArray<Found> =>
  rows.map(({ changed, live, name, object }): Found => ({
    code: "statistics-stale",
    object: name,
    found: `${changed} rows changed since it was analyzed, of ${live}`,
    expected: "analyzed by autovacuum",
    sql: `analyze ${object};\n`,
    advice: "if it comes again, autovacuum is off or does not keep up"
  }))
