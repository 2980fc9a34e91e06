/**
 * A data directory: made by `initdb`, the same on every machine, with settings that `ALTER SYSTEM` can overrule.
 */
import { FileSystem } from "@effect/platform"
import { Effect, Option } from "effect"
import type { Account } from "./execute.js"
import { duringPhase, EmbeddedPostgresError } from "./errors.js"
import { execute } from "./execute.js"
import type { Installation } from "./serverProcess.js"

/** The superuser, by PostgreSQL's custom. */
export const superuser = "postgres"

/** The only address listened on. */
export const host = "127.0.0.1"

const defaults: Readonly<Record<string, string>> = {
  cluster_name: "effect-awa embedded",
  listen_addresses: host,
  log_line_prefix: "%m [%p] %q%u@%d ",
  log_timezone: "UTC",
  max_connections: "200",
  timezone: "UTC",
  // TCP only: the path of a socket in a deep temporary directory can be too long for the system.
  unix_socket_directories: ""
}

const settingName = /^[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?$/i

/** A value in a configuration file; both characters end or change a string when they are not doubled. */
const quoted = (value: string) => `'${value.replaceAll("\\", "\\\\").replaceAll("'", "''")}'`

/** The text of the configuration file: what `initdb` found out, over it the defaults, over them the given settings. */
export const configuration = (settings: Readonly<Record<string, string>>) =>
  Effect.forEach(Object.entries({ ...defaults, ...settings }), ([name, value]) =>
    settingName.test(name)
      ? Effect.succeed(`${name} = ${quoted(value)}\n`)
      : new EmbeddedPostgresError({ phase: "prepare", message: `Not a setting's name: ${JSON.stringify(name)}` })
  ).pipe(Effect.map((lines) => ["include 'data/postgresql.conf'\n", ...lines].join("")))

/** Byte order, and UTF-8 character classes where the server has them built in rather than from the machine's libc. */
const locale = (major: number) =>
  major >= 17
    ? ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
    : [process.platform === "linux" ? "--locale=C.UTF-8" : "--locale=C", "--lc-messages=C"]

/** What `postgres --version` says; asking also shows early that the binaries can run here. */
export const versionOf = (binaries: string, account: Account) =>
  execute(`${binaries}/bin/postgres`, ["--version"], account).pipe(
    Effect.flatMap(({ stdout }) => Option.fromNullable(/(\d+)[.\w]*/.exec(stdout))),
    Effect.map(([version, major]) => ({ version, major: Number(major) })),
    duringPhase("prepare", `${binaries}/bin/postgres does not run here`)
  )

/** Makes the workspace's data directory. */
export const initialize = ({ account, binaries, workspace }: Installation, major: number) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const args = [
      `--pgdata=${workspace.data}`,
      `--username=${superuser}`,
      `--pwfile=${workspace.password}`,
      "--auth=scram-sha-256",
      "--encoding=UTF8",
      ...locale(major),
      // The directory does not outlive this program; that a crash of the machine would harm it is no loss.
      "--no-sync"
    ]
    yield* Effect.mapError(
      execute(`${binaries}/bin/initdb`, args, account, workspace.root),
      (cause) => new EmbeddedPostgresError({ phase: "initialize", message: "initdb failed", log: cause.stderr, cause })
    )
    yield* fs.remove(workspace.password)
  }).pipe(duringPhase("initialize", `No data directory could be made in ${workspace.root}`))
