/** The drivers that the cases are run with, and how the programs of other languages are built. */
import { Effect, type Scope } from "effect"
import { execFileSync, spawnSync } from "node:child_process"
import * as Fs from "node:fs"
import * as Path from "node:path"
import type { Program } from "./program.js"
import { subprocess } from "./subprocess.js"
import * as drizzle from "./ts/drivers/drizzle.js"
import * as effectSql from "./ts/drivers/effectSql.js"
import * as knex from "./ts/drivers/knex.js"
import * as kysely from "./ts/drivers/kysely.js"
import * as mikroOrm from "./ts/drivers/mikroOrm.js"
import * as pg from "./ts/drivers/pg.js"
import * as postgresJs from "./ts/drivers/postgresJs.js"
import * as prisma from "./ts/drivers/prisma.js"
import { generate } from "./ts/drivers/prisma/client.js"
import * as slonik from "./ts/drivers/slonik.js"
import * as typeorm from "./ts/drivers/typeorm.js"
import { inProcess } from "./ts/program.js"

export type Language = "typescript" | "python" | "go" | "java" | "rust"

export interface Exception {
  readonly ends: ReadonlyArray<string>
  readonly why: string
}

export interface DriverEntry {
  readonly name: string
  readonly language: Language
  /** The short form runs these of a language only. */
  readonly short: boolean
  /** Cases that end otherwise with this driver, by its nature: where else than at the end would be a fault. */
  readonly exceptions: Readonly<Record<string, Exception>>
  /** Why not behind a pooler in transaction mode. */
  readonly noPooler?: string
  /** Built before, where there is something to build. */
  readonly start: Effect.Effect<Program, never, Scope.Scope>
}

const here = import.meta.dirname
const built = (language: string) => Path.join(here, "../../.tmp/conformance", language)

interface Toolchain {
  readonly needs: ReadonlyArray<readonly [string, ...ReadonlyArray<string>]>
  readonly build: (drivers: ReadonlyArray<string>) => void
  readonly command: (driver: string) => readonly [string, ...ReadonlyArray<string>]
}

const run = (cwd: string, file: string, args: ReadonlyArray<string>, env: Readonly<Record<string, string>> = {}) => {
  execFileSync(file, args, { cwd, stdio: ["ignore", "ignore", "inherit"], env: { ...process.env, ...env } })
}

const toolchains: Readonly<Record<Exclude<Language, "typescript">, Toolchain>> = {
  python: {
    needs: [["python3", "-m", "venv", "--help"]],
    build: () => {
      const venv = built("python")
      run(here, "python3", ["-m", "venv", venv])
      const requirements = Path.join(here, "python/requirements.txt")
      run(here, Path.join(venv, "bin/pip"), ["install", "--quiet", "--disable-pip-version-check", "-r", requirements])
    },
    // -B: nothing that is compiled is left beside its source
    command: (driver) => [Path.join(built("python"), "bin/python"), "-B", Path.join(here, "python/main.py"), driver]
  },
  go: {
    needs: [["go", "version"]],
    build: () => run(Path.join(here, "go"), "go", ["build", "-o", Path.join(built("go"), "program"), "."]),
    command: (driver) => [Path.join(built("go"), "program"), driver]
  },
  java: {
    needs: [
      ["mvn", "--version"],
      ["java", "-version"]
    ],
    build: () => {
      run(Path.join(here, "java"), "mvn", ["--batch-mode", "--quiet", `-Dbuilt=${built("java")}`, "package"])
    },
    command: (driver) => ["java", "-cp", `${built("java")}/classes:${built("java")}/lib/*`, "conformance.Main", driver]
  },
  rust: {
    needs: [["cargo", "--version"]],
    build: (drivers) => {
      const args = ["build", "--quiet", "--locked", "--no-default-features", "--features", drivers.join(",")]
      run(Path.join(here, "rust"), "cargo", [...args, "--target-dir", built("rust")])
    },
    command: (driver) => [Path.join(built("rust"), "debug/conformance"), driver]
  }
}

/** What is missing to build a language's programs; undefined: nothing. */
export const missing = (language: Language): string | undefined =>
  language === "typescript"
    ? undefined
    : toolchains[language].needs.find(([file, ...args]) => spawnSync(file, args, { stdio: "ignore" }).status !== 0)?.[0]

/** Builds what these drivers need, all of one language. */
export const build = (language: Language, drivers: ReadonlyArray<DriverEntry>): void => {
  if (language === "typescript") return
  Fs.mkdirSync(built(language), { recursive: true })
  toolchains[language].build(drivers.map(({ name }) => name))
}

const typescript = (name: string, start: DriverEntry["start"], rest: Partial<DriverEntry> = {}): DriverEntry => ({
  name,
  language: "typescript",
  short: true,
  exceptions: {},
  ...rest,
  start
})

const other = (
  language: Exclude<Language, "typescript">,
  name: string,
  rest: Partial<DriverEntry> = {}
): DriverEntry => ({
  name,
  language,
  short: false,
  exceptions: {},
  ...rest,
  start: Effect.suspend(() => subprocess(toolchains[language].command(name)))
})

/** asyncpg gives SQLSTATEs to errors of its own. */
const ofAsyncpg: DriverEntry["exceptions"] = {
  oversized: { ends: ["22000"], why: "refused before it is sent, as what asyncpg calls a DataError: 22000" },
  "lost acknowledgement of COMMIT": { ends: ["08003"], why: "asyncpg's own SQLSTATE of a connection that was lost" },
  "COMMIT that never arrived": { ends: ["08003"], why: "asyncpg's own SQLSTATE of a connection that was lost" }
}
const connectionFailure = "PostgreSQL JDBC has a SQLSTATE of its own for a connection that was lost"

export const drivers: ReadonlyArray<DriverEntry> = [
  typescript("pg", inProcess(pg.open)),
  typescript("postgres.js", inProcess(postgresJs.open)),
  typescript("effect-sql", inProcess(effectSql.open)),
  typescript("kysely", inProcess(kysely.open)),
  typescript("drizzle", inProcess(drizzle.openPg)),
  typescript("drizzle-postgres.js", inProcess(drizzle.openPostgresJs)),
  typescript("knex", inProcess(knex.open)),
  typescript("typeorm", inProcess(typeorm.open)),
  typescript("slonik", inProcess(slonik.open)),
  typescript("mikro-orm", inProcess(mikroOrm.open)),
  typescript("prisma", Effect.zipRight(Effect.sync(generate), inProcess(prisma.open))),
  other("python", "psycopg", { short: true }),
  other("python", "asyncpg", { short: true, exceptions: ofAsyncpg }),
  other("python", "sqlalchemy-core", { short: true }),
  other("python", "sqlalchemy-orm", { short: true }),
  other("python", "sqlalchemy-async", { short: true, exceptions: ofAsyncpg }),
  other("python", "django", { short: true }),
  other("go", "pgx", { short: true }),
  other("go", "database-sql", { short: true }),
  other("java", "jdbc", {
    short: true,
    exceptions: {
      "lost acknowledgement of COMMIT": { ends: ["08006"], why: connectionFailure },
      "COMMIT that never arrived": { ends: ["08006"], why: connectionFailure }
    }
  }),
  other("java", "spring"),
  other("rust", "tokio-postgres", { short: true }),
  other("rust", "sqlx"),
  other("rust", "seaorm")
]
