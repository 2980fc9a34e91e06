/** The server of a run, and a database for each benchmark on it. */
import { make } from "effect-awa/layers/EmbeddedPostgres"
import { migrate } from "effect-awa/Migrations"
import { Effect, Redacted, type Scope } from "effect"
import { randomBytes } from "node:crypto"
import { statfs } from "node:fs/promises"
import * as Engine from "../engine.js"

/** As production has it, with memory and checkpoints that a small server would be given. */
const settings = {
  shared_buffers: "1GB",
  max_wal_size: "8GB",
  checkpoint_timeout: "15min"
}

const profiling = { shared_preload_libraries: "pg_stat_statements", "pg_stat_statements.track": "all" }

/** A superuser's url: the given server's, or that of an embedded one, which ends with the scope. */
export const serverUrl = (given: string | undefined, profile: boolean): Effect.Effect<string, Error, Scope.Scope> =>
  given === undefined
    ? Effect.map(make({ settings: { ...settings, ...(profile ? profiling : {}) } }), (server) =>
        Redacted.value(server.url("postgres"))
      ).pipe(Effect.mapError((error) => new Error(String(error))))
    : Effect.succeed(given)

export interface Database {
  readonly url: string
  readonly extensions: ReadonlySet<Engine.Extension>
}

const at = (server: string, database: string): string => {
  const url = new URL(server)
  url.pathname = `/${database}`
  return url.href
}

/** Runs with a migrated database that is dropped afterwards. */
export const withDatabase = async <A>(
  server: string,
  use: (database: Database) => Promise<A>,
  ring = 16
): Promise<A> => {
  const name = `awa_bench_${randomBytes(5).toString("hex")}`
  await Engine.withClient(server, (admin) => admin.query(`create database ${name} template template0`))
  const url = at(server, name)
  try {
    await Effect.runPromise(migrate({ url: Redacted.make(url), ring }))
    const extensions = await Engine.withClient(url, Engine.prepare)
    return await use({ url, extensions })
  } finally {
    await Engine.withClient(server, (admin) => admin.query(`drop database if exists ${name} with (force)`))
  }
}

/** Fails when the disk that holds the server's data has less than this; cannot tell about a server elsewhere. */
export const requireDisk = async (server: string, bytes: number): Promise<string> => {
  const directory = await Engine.withClient(server, Engine.dataDirectory)
  const disk = await statfs(directory).catch(() => undefined)
  const gigabytes = (n: number) => `${(n / 1e9).toFixed(1)} GB`
  if (disk === undefined) return `needs about ${gigabytes(bytes)} of disk; the server's disk is not visible from here`
  const free = disk.bavail * disk.bsize
  if (free < bytes) throw new Error(`${gigabytes(bytes)} of free disk are needed, ${gigabytes(free)} are there`)
  return `needs about ${gigabytes(bytes)} of disk, ${gigabytes(free)} were free`
}

/** Several at a time. */
export const withDatabases = async <A>(
  server: string,
  count: number,
  use: (databases: ReadonlyArray<Database>) => Promise<A>,
  made: ReadonlyArray<Database> = []
): Promise<A> =>
  made.length === count
    ? use(made)
    : withDatabase(server, (database) => withDatabases(server, count, use, [...made, database]))

export const log = (text: string): void => console.log(`  ${new Date().toISOString().slice(11, 19)} ${text}`)
