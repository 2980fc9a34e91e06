/**
 * A pgbouncer of a test's own: Debian's package, configured in a directory of its own, run as an account without privileges on
 * a free port, before whatever server the tests use.
 */
import { Context, Data, Effect, Layer, Option, Schedule, type Scope } from "effect"
import { spawn, spawnSync } from "node:child_process"
import * as Fs from "node:fs"
import * as Net from "node:net"
import * as Os from "node:os"
import * as Path from "node:path"
import pg from "pg"
import { unprivileged } from "../../layers/internal/embeddedPostgres/account.js"

export class PoolerError extends Data.TaggedError("PoolerError")<{ readonly message: string }> {}

export type PoolMode = "session" | "transaction"

export interface PoolerOptions {
  /** A superuser's url of the server. */
  readonly server: string
  readonly mode: PoolMode
  /** Lines of the configuration, over what is below. */
  readonly settings?: Readonly<Record<string, string>>
  /** Who may connect besides the superuser, with their passwords. */
  readonly users?: Readonly<Record<string, string>>
}

export interface PgBouncer {
  /** The same database through the pooler. */
  readonly through: (url: string) => string
  /** A command of the pooler's own console. */
  readonly command: (text: string) => Effect.Effect<ReadonlyArray<Readonly<Record<string, unknown>>>, PoolerError>
  /** Ends the pooler, with every connection, and starts it again on its port; perhaps with other settings. */
  readonly restart: (options?: Partial<Omit<PoolerOptions, "server">>) => Effect.Effect<void, PoolerError>
  /** What the pooler has said. */
  readonly log: Effect.Effect<string>
}

/** Where Debian puts it is not on everybody's path. */
export const findPgBouncer = (): string | undefined =>
  ["pgbouncer", "/usr/sbin/pgbouncer"].find((file) => spawnSync(file, ["--version"]).status === 0)

const freePort = Effect.async<number, PoolerError>((resume) => {
  const server = Net.createServer()
  server.once("error", (error) => resume(new PoolerError({ message: error.message })))
  server.listen(0, "127.0.0.1", () => {
    const address = server.address()
    const port = typeof address === "object" && address !== null ? address.port : 0
    server.close(() => resume(Effect.succeed(port)))
  })
})

const configuration = (
  server: URL,
  port: number,
  directory: string,
  options: Omit<PoolerOptions, "server">
): string => {
  const settings: Record<string, string> = {
    listen_addr: "127.0.0.1",
    listen_port: String(port),
    unix_socket_dir: "",
    auth_type: "trust",
    auth_file: Path.join(directory, "users.txt"),
    admin_users: decodeURIComponent(server.username),
    pool_mode: options.mode,
    max_client_conn: "500",
    default_pool_size: "40",
    server_idle_timeout: "1", // a test that copies a database finds it left alone
    server_login_retry: "1",
    ...options.settings
  }
  const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}`)
  return `[databases]\n* = host=${server.hostname} port=${server.port || "5432"}\n\n[pgbouncer]\n${lines.join("\n")}\n`
}

interface Running {
  readonly said: () => string
  readonly ended: () => boolean
  readonly stop: Effect.Effect<void>
}

/** Its end is waited for: the port must be free, and no test's connection outlive it. */
const launch = (
  file: string,
  args: ReadonlyArray<string>,
  account: { uid: number; gid: number } | undefined
): Running => {
  const child = spawn(file, args, { stdio: ["ignore", "pipe", "pipe"], ...account })
  let said = ""
  const note = (chunk: Buffer): void => {
    said = (said + chunk.toString()).slice(-200_000)
  }
  child.stdout.on("data", note)
  child.stderr.on("data", note)
  child.on("error", (error) => note(Buffer.from(String(error))))
  const orphan = (): void => void child.kill("SIGKILL")
  process.once("exit", orphan)
  const ended = new Promise<void>((resolve) =>
    child.once("close", () => {
      process.off("exit", orphan)
      resolve()
    })
  )
  return {
    said: () => said,
    ended: () => child.exitCode !== null || child.signalCode !== null,
    stop: Effect.promise(() => {
      child.kill("SIGTERM") // at once, under its clients
      return ended
    })
  }
}

const ask = (url: string, text: string): Effect.Effect<ReadonlyArray<Readonly<Record<string, unknown>>>, PoolerError> =>
  Effect.acquireUseRelease(
    Effect.sync(() => {
      const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 2_000 })
      client.on("error", () => undefined)
      return client
    }),
    (client) =>
      Effect.tryPromise({
        try: async () => {
          await client.connect()
          return (await client.query<Record<string, unknown>>(text)).rows
        },
        catch: (cause) => new PoolerError({ message: `${text}: ${String(cause)}` })
      }),
    (client) => Effect.promise(() => client.end().catch(() => undefined))
  )

/** Starts one; it ends with the scope. */
export const makePgBouncer = (options: PoolerOptions): Effect.Effect<PgBouncer, PoolerError, Scope.Scope> =>
  Effect.gen(function* () {
    const file = findPgBouncer()
    if (file === undefined) return yield* new PoolerError({ message: "pgbouncer is not installed" })
    const account = yield* Effect.mapError(unprivileged, ({ message }) => new PoolerError({ message }))
    const server = new URL(options.server)
    const port = yield* freePort
    const directory = yield* Effect.acquireRelease(
      Effect.sync(() => Fs.mkdtempSync(Path.join(Os.tmpdir(), "awa-pgbouncer-"))),
      (directory) => Effect.sync(() => Fs.rmSync(directory, { recursive: true, force: true }))
    )
    const user = decodeURIComponent(server.username)
    const quoted = (text: string) => `"${text.replaceAll('"', '""')}"`
    const write = (name: string, text: string): void => {
      const path = Path.join(directory, name)
      Fs.writeFileSync(path, text, { mode: 0o600 })
      if (Option.isSome(account)) Fs.chownSync(path, account.value.uid, account.value.gid)
    }
    if (Option.isSome(account)) Fs.chownSync(directory, account.value.uid, account.value.gid)
    const users = { ...options.users, [user]: decodeURIComponent(server.password) }
    write(
      "users.txt",
      Object.entries(users)
        .map(([name, password]) => `${quoted(name)} ${quoted(password)}\n`)
        .join("")
    )
    const through = (url: string): string => {
      const parsed = new URL(url)
      parsed.hostname = "127.0.0.1"
      parsed.port = String(port)
      return parsed.href
    }
    const consoleUrl = through(Object.assign(new URL(options.server), { pathname: "/pgbouncer" }).href)

    let running: Running | undefined
    const answers = ask(consoleUrl, "show version").pipe(
      Effect.retry({
        schedule: Schedule.spaced("20 millis"),
        times: 1_000,
        while: () => running?.ended() === false
      }),
      Effect.mapError(({ message }) => new PoolerError({ message: `${message}\n${running?.said() ?? ""}` }))
    )
    const start = (now: Omit<PoolerOptions, "server">) =>
      Effect.zipRight(
        Effect.sync(() => {
          write("pgbouncer.ini", configuration(server, port, directory, now))
          running = launch(file, [Path.join(directory, "pgbouncer.ini")], Option.getOrUndefined(account))
        }),
        answers
      )
    const stop = Effect.suspend(() => running?.stop ?? Effect.void)
    yield* Effect.addFinalizer(() => stop)
    yield* start(options)
    return {
      through,
      command: (text) => ask(consoleUrl, text),
      restart: (changed) => Effect.zipRight(stop, Effect.asVoid(start({ ...options, ...changed }))),
      log: Effect.sync(() => running?.said() ?? "")
    }
  })

/** The pooler of a test. */
export class Pooler extends Context.Tag("test/Pooler")<Pooler, PgBouncer>() {}

export const pooler = (options: PoolerOptions): Layer.Layer<Pooler, PoolerError> =>
  Layer.scoped(Pooler, makePgBouncer(options))
