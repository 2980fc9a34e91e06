/**
 * The SQL of the benchmarks, all of it: what the runtime's services do not offer (filling, draining without a runtime, rotation
 * by hand, pinned horizons) and what is read from the server's own statistics. Everything else goes through the runtime.
 */
import { readFile } from "node:fs/promises"
import { setTimeout } from "node:timers/promises"
import pg from "pg"

export type Client = pg.Client

export const connect = async (url: string): Promise<Client> => {
  const client = new pg.Client({ connectionString: url, application_name: "effect-awa bench" })
  client.on("error", () => {}) // a session that the server ends is told by its next statement
  await client.connect()
  return client
}

/** Runs with a session of its own. */
export const withClient = async <A>(url: string, use: (client: Client) => Promise<A>): Promise<A> => {
  const client = await connect(url)
  try {
    return await use(client)
  } finally {
    await client.end()
  }
}

const numbers = async (client: Client, text: string, values: ReadonlyArray<unknown> = []) => {
  const { rows } = await client.query<Record<string, string | number | null>>(text, [...values])
  return rows.map((row) => Object.fromEntries(Object.entries(row).map(([name, value]) => [name, Number(value ?? 0)])))
}

const numberOf = async (client: Client, text: string, values: ReadonlyArray<unknown> = []): Promise<number> => {
  const [row] = await numbers(client, text, values)
  return row === undefined ? 0 : (Object.values(row)[0] ?? 0)
}

/** The kind and the payload of every job of the benchmarks: 120 bytes as the server writes it. */
export const kind = "bench"
export const payloadBytes = 120

const helpers = `
create schema bench;
create unlogged table bench.batches (claimed integer not null, claim_us bigint not null, close_us bigint not null);

create function bench.jobs(p_from bigint, p_count integer, p_queue text, p_opts jsonb) returns jsonb language sql as $$
  select jsonb_agg(jsonb_build_object(
    'kind', '${kind}', 'queue', p_queue, 'opts', p_opts,
    'args', jsonb_build_object('at', 0, 'do', 'plain', 'pad', repeat('x', ${payloadBytes - 35}))))
  from generate_series(p_from, p_from + p_count - 1) i
$$;

create procedure bench.fill(p_jobs bigint, p_queue text, p_opts jsonb) language plpgsql as $$
declare
  v_left  bigint := p_jobs;
  v_count integer;
begin
  while v_left > 0 loop
    v_count := least(v_left, 2000);
    perform count(*) from awa.insert_jobs(bench.jobs(v_left, v_count, p_queue, p_opts));
    commit;
    v_left := v_left - v_count;
  end loop;
end $$;

-- Claims and closes, each in a transaction of its own, as a worker without handlers would.
create procedure bench.drain(p_queue text, p_jobs bigint, p_size integer) language plpgsql as $$
declare
  v_left bigint := p_jobs;
  v_t0   timestamptz;
  v_t1   timestamptz;
  v_n    integer;
  v      record;
begin
  while v_left > 0 loop
    v_t0 := clock_timestamp();
    select array_agg(c.claim_slot) as slots, array_agg(c.batch_id) as batches, array_agg(c.batch_index) as indexes,
           array_agg(c.job_id) as jobs, array_agg(c.run_lease) as leases, array_agg(c.receipt_id) as receipts
    into v from awa.claim(p_queue, least(v_left, p_size)::integer, 0) c where not c.lane_busy;
    commit;
    v_t1 := clock_timestamp();
    v_n := coalesce(cardinality(v.jobs), 0);
    exit when v_n = 0;
    perform count(*) from awa.close_attempts(1, v.slots, v.batches, v.indexes, v.jobs, v.leases, v.receipts,
      array_fill('completed'::awa.outcome, array[v_n]), '{}', false);
    insert into bench.batches values (v_n, extract(epoch from v_t1 - v_t0) * 1e6, extract(epoch from clock_timestamp() - v_t1) * 1e6);
    commit;
    v_left := v_left - v_n;
  end loop;
end $$;`

export const extensions = ["pgstattuple", "pg_walinspect", "pg_stat_statements"] as const
export type Extension = (typeof extensions)[number]

/** The benchmarks' own helpers, and the extensions that the server can offer. */
export const prepare = async (client: Client): Promise<ReadonlySet<Extension>> => {
  await client.query(helpers)
  const found = new Set<Extension>()
  for (const extension of extensions) {
    const created = await client.query(`create extension if not exists ${extension}`).then(
      () => true,
      () => false // not built for this server
    )
    if (created) found.add(extension)
  }
  return found
}

// ---- filling, draining, rotating --------------------------------------------------------------------------------------

export interface Fill {
  readonly jobs: number
  readonly queue: string
  readonly opts?: Readonly<Record<string, unknown>>
  /** Rotate after so many. */
  readonly rotateEvery?: number
}

export const fill = async (client: Client, options: Fill): Promise<void> => {
  const step = options.rotateEvery ?? options.jobs
  for (let left = options.jobs; left > 0; left -= step) {
    await client.query("call bench.fill($1, $2, $3)", [
      Math.min(step, left),
      options.queue,
      JSON.stringify({ ...options.opts, notify: false })
    ])
    if (left > step) await rotate(client)
  }
}

/** A new current segment, whatever its age and size. */
export const rotate = async (client: Client): Promise<void> => {
  for (;;) {
    const { rows } = await client.query<{ answer: string | null }>("select awa.rotate('0 s', 1, '0 s') as answer")
    const answer = rows[0]?.answer
    if (answer === "advanced") return
    if (answer === "full" || answer === "idle") throw new Error(`the ring did not turn: ${answer}`)
  }
}

export interface Batches {
  readonly jobs: number
  readonly claimMicros: ReadonlyArray<number>
  readonly closeMicros: ReadonlyArray<number>
  readonly seconds: number
  /** Processor time of the session's server process for each job; NaN where it cannot be seen. */
  readonly cpuMicros: number
}

interface Backend {
  readonly pid: number
  readonly database: string
}

const backend = async (client: Client): Promise<Backend> => {
  const { rows } = await client.query<Backend>("select pg_backend_pid() as pid, current_database() as database")
  return rows[0] ?? { pid: 0, database: "" }
}

/** The processor time of a server process on this machine, in microseconds. Unlike elapsed time, the neighbours hardly change it. */
const cpuMicros = async ({ database, pid }: Backend): Promise<number> => {
  try {
    // its title names the database: a process of that number that is another one is not taken for it
    const title = await readFile(`/proc/${pid}/cmdline`, "utf8")
    if (!title.includes(database)) return Number.NaN
    return Number((await readFile(`/proc/${pid}/schedstat`, "utf8")).split(" ")[0]) / 1000
  } catch {
    return Number.NaN // a server elsewhere
  }
}

/** The processor time so far of this database's sessions, without the benchmark's own, by process; empty for a server elsewhere. */
export const sessionsCpu = async (client: Client): Promise<ReadonlyMap<number, number>> => {
  const { rows } = await client.query<Backend>(
    "select pid, datname as database from pg_stat_activity where datname = current_database() and application_name <> 'effect-awa bench'"
  )
  const spent = new Map<number, number>()
  for (const row of rows) {
    const micros = await cpuMicros(row)
    if (Number.isFinite(micros)) spent.set(row.pid, micros)
  }
  return spent
}

/** Between two readings, in microseconds; what sessions did that ended in between is not in it. */
export const cpuBetween = (before: ReadonlyMap<number, number>, after: ReadonlyMap<number, number>): number =>
  after.size === 0 ? Number.NaN : [...after].reduce((sum, [pid, micros]) => sum + micros - (before.get(pid) ?? 0), 0)

/** Claims and closes so many jobs in the session itself; a session keeps its plans over its calls. */
export const drain = async (client: Client, queue: string, jobs: number, size = 500): Promise<Batches> => {
  await client.query("truncate bench.batches")
  const process = await backend(client)
  const before = await cpuMicros(process)
  const started = performance.now()
  await client.query("call bench.drain($1, $2, $3)", [queue, jobs, size])
  const seconds = (performance.now() - started) / 1000
  const spent = (await cpuMicros(process)) - before
  const rows = await numbers(client, "select claimed, claim_us, close_us from bench.batches order by ctid")
  const column = (name: string) => rows.map((row) => row[name] ?? 0)
  const claimed = column("claimed").reduce((sum, n) => sum + n, 0)
  return {
    jobs: claimed,
    cpuMicros: spent / claimed,
    claimMicros: column("claim_us"),
    closeMicros: column("close_us"),
    seconds
  }
}

export const pause = (client: Client, queue: string, paused: boolean): Promise<unknown> =>
  client.query(
    "insert into awa.queues (queue, paused) values ($1, $2) on conflict (queue) do update set paused = excluded.paused",
    [queue, paused]
  )

/** Every table of the schema, or none, analyzed as it is now. */
export const analyze = async (client: Client): Promise<void> => {
  const { rows } = await client.query<{ name: string }>(
    "select format('awa.%I', relname) as name from pg_class where relnamespace = 'awa'::regnamespace and relkind = 'r'"
  )
  await client.query(`analyze ${rows.map((row) => row.name).join(", ")}`)
}

/** No autovacuum, so that nothing corrects what a benchmark set up. */
export const noAutovacuum = async (client: Client): Promise<void> => {
  const { rows } = await client.query<{ name: string }>(
    "select format('awa.%I', relname) as name from pg_class where relnamespace = 'awa'::regnamespace and relkind = 'r'"
  )
  for (const { name } of rows) await client.query(`alter table ${name} set (autovacuum_enabled = off)`)
}

// ---- deferred jobs ----------------------------------------------------------------------------------------------------

/** One instant for many jobs, as an option. */
export const instantFromNow = async (client: Client, seconds: number): Promise<string> => {
  const { rows } = await client.query<{ at: string }>(
    `select to_char((clock_timestamp() + $1 * interval '1 second') at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as at`,
    [seconds]
  )
  return rows[0]?.at ?? ""
}

export const dueIn = (client: Client, instant: string): Promise<number> =>
  numberOf(client, "select extract(epoch from $1::timestamptz - clock_timestamp()) * 1000", [instant])

/** How many entries of a queue stand in the ring in another order than that of their ids. */
export const outOfOrder = (client: Client, queue: string): Promise<number> =>
  numberOf(
    client,
    `select count(*) from (
       select job_id < lag(job_id) over (order by xid, seq) as back from awa.ready_entries where queue = $1) e where back`,
    [queue]
  )

export const deferredCount = (client: Client): Promise<number> =>
  numberOf(client, "select count(*) from awa.deferred_jobs")

// ---- transactions that pin the horizon --------------------------------------------------------------------------------

export type Pin = "none" | "reader" | "xid" | "scans"

/** Pins the horizon in one of the known ways until the answer is called. */
export const pin = async (url: string, how: Pin): Promise<() => Promise<void>> => {
  switch (how) {
    case "none":
      return () => Promise.resolve()
    case "reader": {
      const client = await connect(url)
      await client.query("begin isolation level repeatable read")
      await client.query("select count(*) from awa.meta")
      return () => client.end()
    }
    case "xid": {
      const client = await connect(url)
      await client.query("begin")
      await client.query("select pg_current_xact_id()")
      return () => client.end()
    }
    case "scans": {
      const stopped = new AbortController()
      const readers = [0, 1, 2, 3].map((n) => scanning(url, n * 2500, stopped.signal))
      return async () => {
        stopped.abort()
        await Promise.all(readers)
      }
    }
  }
}

/** Until the time is over or the signal is given. */
const sleep = (millis: number, signal: AbortSignal): Promise<void> =>
  setTimeout(millis, undefined, { signal }).catch(() => undefined)

/**
 * A report that reads the entries through a cursor, 200 rows at a time, for ten seconds of one snapshot, again and again. Four of
 * them, a quarter apart: there is always one, and none of them is old. They read slowly, so that what is measured is the
 * horizon they hold and not the processor they use.
 */
const scanning = (url: string, startMillis: number, signal: AbortSignal): Promise<void> =>
  withClient(url, async (client) => {
    const stopped = () => signal.aborted
    await sleep(startMillis, signal)
    while (!stopped()) {
      const until = performance.now() + 10_000
      await client.query("begin isolation level repeatable read")
      await client.query("declare report no scroll cursor for select * from awa.ready_entries")
      while (!stopped() && performance.now() < until) {
        await client.query("fetch 200 from report")
        await sleep(100, signal)
      }
      await client.query("commit")
    }
  })

// ---- what the server knows --------------------------------------------------------------------------------------------

export interface TableState {
  /** The table's name; the tables of all segments together as `name_N`. */
  readonly name: string
  readonly rows: number
  readonly dead: number
  readonly bytes: number
}

/** Dead rows as the statistics count them: cheap, and a moment old. */
export const tables = async (client: Client): Promise<ReadonlyArray<TableState>> => {
  const { rows } = await client.query<{ name: string; rows: string; dead: string; bytes: string }>(
    `select regexp_replace(relname, '_\\d+$', '_N') as name, sum(n_live_tup) as rows, sum(n_dead_tup) as dead,
            sum(pg_total_relation_size(relid)) as bytes
     from pg_stat_user_tables where schemaname = 'awa' group by 1 order by 1`
  )
  return rows.map((row) => ({
    name: row.name,
    rows: Number(row.rows),
    dead: Number(row.dead),
    bytes: Number(row.bytes)
  }))
}

/** Dead rows as they are: every table is read. */
export const exactDead = async (client: Client): Promise<ReadonlyMap<string, number>> => {
  const { rows } = await client.query<{ name: string; dead: string }>(
    `select regexp_replace(c.relname, '_\\d+$', '_N') as name, sum(t.dead_tuple_count) as dead
     from pg_class c cross join lateral pgstattuple(c.oid) t
     where c.relnamespace = 'awa'::regnamespace and c.relkind = 'r' group by 1`
  )
  return new Map(rows.map((row) => [row.name, Number(row.dead)]))
}

export interface IndexState {
  readonly name: string
  readonly bytes: number
  /** Per cent of its leaf pages that is filled. */
  readonly density: number
  readonly emptyPages: number
}

/** The indexes of the mutable tables. */
export const indexes = async (client: Client): Promise<ReadonlyArray<IndexState>> => {
  const { rows } = await client.query<{ name: string; bytes: string; density: string; empty: string }>(
    `select i.relname as name, s.index_size as bytes, coalesce(nullif(s.avg_leaf_density, 'NaN'), 0) as density,
            s.empty_pages + s.deleted_pages as empty
     from pg_class i join pg_index x on x.indexrelid = i.oid cross join lateral pgstatindex(i.oid) s
     where i.relnamespace = 'awa'::regnamespace and i.relname !~ '_\\d+_' and s.index_size > 16384 order by 1`
  )
  return rows.map((row) => ({
    name: row.name,
    bytes: Number(row.bytes),
    density: Number(row.density),
    emptyPages: Number(row.empty)
  }))
}

export const databaseBytes = (client: Client): Promise<number> =>
  numberOf(client, "select pg_database_size(current_database())")

export const dataDirectory = async (client: Client): Promise<string> => {
  const { rows } = await client.query<{ data_directory: string }>("show data_directory")
  return rows[0]?.data_directory ?? ""
}

export const version = async (client: Client): Promise<string> => {
  const { rows } = await client.query<{ server_version: string }>("show server_version")
  return rows[0]?.server_version ?? ""
}

/** The settings that decide what is measured. */
export const settings = async (client: Client): Promise<ReadonlyArray<readonly [string, string]>> => {
  const { rows } = await client.query<{ name: string; setting: string }>(
    `select name, current_setting(name) as setting from pg_settings
     where name in ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_wal_size', 'checkpoint_timeout',
                    'wal_level', 'wal_compression', 'autovacuum_naptime') order by 1`
  )
  return rows.map((row) => [row.name, row.setting])
}

export const checkpoint = (client: Client): Promise<unknown> => client.query("checkpoint")

export const segmentStates = async (client: Client): Promise<string> => {
  const { rows } = await client.query<{ states: string }>(
    `select string_agg(state || ' ' || n, ', ' order by state) as states
     from (select state, count(*) as n from awa.segments group by 1) s`
  )
  return rows[0]?.states ?? ""
}

export interface WalMark {
  readonly lsn: string
  readonly bytes: number
  readonly records: number
  readonly images: number
  readonly commits: number
}

/** How much was written and committed so far. Statistics of other sessions arrive within a second: rest before. */
export const walMark = async (client: Client): Promise<WalMark> => {
  await client.query("select pg_stat_clear_snapshot()")
  const { rows } = await client.query<{ lsn: string; bytes: string; records: string; images: string; commits: string }>(
    `select pg_current_wal_insert_lsn()::text as lsn, pg_current_wal_insert_lsn() - '0/0' as bytes, w.wal_records as records, w.wal_fpi as images,
            d.xact_commit as commits
     from pg_stat_wal w, pg_stat_database d where d.datname = current_database()`
  )
  const [row] = rows
  if (row === undefined) throw new Error("pg_stat_wal is empty")
  return {
    lsn: row.lsn,
    bytes: Number(row.bytes),
    records: Number(row.records),
    images: Number(row.images),
    commits: Number(row.commits)
  }
}

export interface WalKind {
  readonly kind: string
  readonly count: number
  readonly recordBytes: number
  readonly imageBytes: number
}

/** What was written between two marks, by kind of record; the largest first. */
export const walKinds = async (client: Client, from: WalMark, to: WalMark): Promise<ReadonlyArray<WalKind>> => {
  await client.query("select pg_logical_emit_message(true, '', '')") // a commit: what comes before it is flushed, and can be read
  const { rows } = await client.query<{ kind: string; count: string; record_size: string; fpi_size: string }>(
    `select "resource_manager/record_type" as kind, count, record_size, fpi_size
     from pg_get_wal_stats($1::pg_lsn, $2::pg_lsn, true) where count > 0 order by combined_size desc`,
    [from.lsn, to.lsn]
  )
  return rows.map((row) => ({
    kind: row.kind,
    count: Number(row.count),
    recordBytes: Number(row.record_size),
    imageBytes: Number(row.fpi_size)
  }))
}

export const resetStatements = (client: Client): Promise<unknown> => client.query("select pg_stat_statements_reset()")

export interface StatementCost {
  readonly text: string
  readonly calls: number
  readonly millis: number
  readonly rows: number
  readonly hits: number
  readonly reads: number
}

/** Where the server's time went, statements inside functions included. */
export const statements = async (client: Client, limit = 15): Promise<ReadonlyArray<StatementCost>> => {
  const { rows } = await client.query<Record<"text" | "calls" | "millis" | "rows" | "hits" | "reads", string>>(
    `select regexp_replace(left(query, 240), '\\s+', ' ', 'g') as text, sum(calls) as calls, sum(total_exec_time) as millis, sum(rows) as rows,
            sum(shared_blks_hit) as hits, sum(shared_blks_read) as reads
     from pg_stat_statements s join pg_database d on d.oid = s.dbid and d.datname = current_database()
     where query !~ 'bench\\.|pg_stat' group by 1 order by 3 desc limit $1`,
    [limit]
  )
  return rows.map((row) => ({
    text: row.text,
    calls: Number(row.calls),
    millis: Number(row.millis),
    rows: Number(row.rows),
    hits: Number(row.hits),
    reads: Number(row.reads)
  }))
}
