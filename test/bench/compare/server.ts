/** The servers of a run, and what is read from them. */
import { make } from "effect-awa/layers/EmbeddedPostgres"
import { Effect, Redacted, type Scope } from "effect"
import { spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { connect, createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import pg from "pg"
import { usedBy, usedByFamily } from "./processes.js"

/** PostgreSQL's own durability, and the memory and checkpoints that a small server would be given. */
const settings = {
  shared_buffers: "1GB",
  max_wal_size: "8GB",
  checkpoint_timeout: "15min",
  shared_preload_libraries: "pg_stat_statements",
  // turned on only where statements are counted: it costs something
  "pg_stat_statements.track": "none"
}

export const serverUrl = (given: string | undefined): Effect.Effect<string, Error, Scope.Scope> =>
  given === undefined
    ? Effect.map(make({ settings }), (server) => Redacted.value(server.url("postgres"))).pipe(
        Effect.mapError((error) => new Error(String(error)))
      )
    : Effect.succeed(given)

export interface Redis {
  readonly url: string
  readonly pid: number
}

const freePort = (): Promise<number> =>
  new Promise((resolve, reject) => {
    const server = createServer()
    server.once("error", reject)
    server.listen(0, "127.0.0.1", () => {
      const address = server.address()
      server.close(() =>
        typeof address === "object" && address !== null ? resolve(address.port) : reject(new Error())
      )
    })
  })

/** As BullMQ's page on production has it: an append-only file that is flushed every second. */
export const redisServer: Effect.Effect<Redis, Error, Scope.Scope> = Effect.acquireRelease(
  Effect.tryPromise({
    try: async () => {
      const port = await freePort()
      const dir = mkdtempSync(join(tmpdir(), "effect-awa-redis-"))
      const args = ["--port", String(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "yes"]
      const child = spawn("redis-server", [...args, "--maxmemory-policy", "noeviction"], { stdio: "ignore" })
      const onExit = () => child.kill("SIGKILL")
      process.once("exit", onExit)
      await sleep(500)
      if (child.pid === undefined || child.exitCode !== null) throw new Error("redis-server did not start")
      return { url: `redis://127.0.0.1:${port}`, pid: child.pid, child, dir, onExit }
    },
    catch: (error) => (error instanceof Error ? error : new Error(String(error)))
  }),
  ({ child, dir, onExit }) =>
    Effect.promise(async () => {
      process.removeListener("exit", onExit)
      const ended = new Promise((resolve) => child.once("exit", resolve))
      if (child.kill("SIGTERM")) await ended
      rmSync(dir, { recursive: true, force: true })
    })
)

const at = (server: string, database: string): string => {
  const url = new URL(server)
  url.pathname = `/${database}`
  return url.href
}

export interface Admin {
  readonly query: (text: string, values?: ReadonlyArray<unknown>) => Promise<ReadonlyArray<Record<string, unknown>>>
  readonly version: string
  readonly settings: string
  /** Of the process that all others are children of; nothing where the server is elsewhere. */
  readonly postmaster: number | undefined
  readonly end: () => Promise<void>
}

const postmasterOf = (directory: string): number | undefined => {
  try {
    const pid = Number(readFileSync(join(directory, "postmaster.pid"), "utf8").split("\n")[0])
    return usedBy(pid) === undefined ? undefined : pid
  } catch {
    return undefined
  }
}

export const adminOf = async (server: string): Promise<Admin> => {
  const client = new pg.Client({ connectionString: server })
  await client.connect()
  const query: Admin["query"] = async (text, values = []) =>
    (await client.query<Record<string, unknown>>(text, [...values])).rows
  const [facts] = await query(
    `select current_setting('server_version') as version, current_setting('data_directory') as directory,
            (select string_agg(name || ' ' || current_setting(name), ', ' order by name) from pg_settings
             where name in ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_wal_size')) as settings`
  )
  return {
    query,
    version: String(facts?.["version"]),
    settings: String(facts?.["settings"]),
    postmaster: postmasterOf(String(facts?.["directory"])),
    end: () => client.end()
  }
}

export interface Database {
  readonly name: string
  readonly url: string
}

/** Runs with a database of its own, with the application's table; it is dropped afterwards. */
export const withDatabase = async <A>(
  server: string,
  admin: Admin,
  use: (database: Database) => Promise<A>
): Promise<A> => {
  const name = `bench_${randomBytes(5).toString("hex")}`
  await admin.query(`create database ${name} template template0`)
  try {
    const url = at(server, name)
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    await client.query("create table bench_accounts (id integer primary key, n bigint not null)")
    await client.query("insert into bench_accounts select i, 0 from generate_series(1, 1000) i")
    await client.end()
    return await use({ name, url })
  } finally {
    await admin.query(`drop database if exists ${name} with (force)`)
  }
}

export interface Mark {
  readonly walBytes: number
  readonly commits: number
  readonly serverCpu: number | undefined
}

/** What was written, committed and computed so far. It waits for the sessions of a program that has ended. */
export const mark = async (admin: Admin, database: string, redis: Redis | undefined): Promise<Mark> => {
  for (let tries = 0; tries < 100; tries += 1) {
    const left = await admin.query(
      "select 1 from pg_stat_activity where datname = $1 and backend_type = 'client backend'",
      [database]
    )
    if (left.length === 0) break
    await sleep(50)
  }
  const [row] = await admin.query(
    `select pg_current_wal_insert_lsn() - '0/0' as wal, xact_commit as commits from pg_stat_database where datname = $1`,
    [database]
  )
  const ofPostgres = admin.postmaster === undefined ? undefined : usedByFamily(admin.postmaster)
  const ofRedis = redis === undefined ? 0 : (usedBy(redis.pid)?.cpuSeconds ?? 0)
  return {
    walBytes: Number(row?.["wal"]),
    commits: Number(row?.["commits"]),
    serverCpu: ofPostgres === undefined ? undefined : ofPostgres + ofRedis
  }
}

/** One command over a connection of its own; resolves with the raw answer. */
export const redisCommand = (redis: Redis, command: string): Promise<string> =>
  new Promise((resolve, reject) => {
    const { hostname, port } = new URL(redis.url)
    const socket = connect(Number(port), hostname, () => socket.write(`${command}\r\nQUIT\r\n`))
    let said = ""
    socket.on("data", (chunk: Buffer) => (said += chunk.toString()))
    socket.once("error", reject)
    socket.once("close", () => resolve(said))
  })
