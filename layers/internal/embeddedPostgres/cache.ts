/**
 * A copy of the packaged binaries that the server's account can reach and whose library links are whole. `node_modules`
 * may lie under a home nobody else may enter, may be read-only, and may have been installed without install scripts.
 */
import { createHash } from "node:crypto"
import { lstat } from "node:fs/promises"
import { FileSystem, Path } from "@effect/platform"
import { Effect, Option } from "effect"
import type { Binaries } from "./binaries.js"
import { EmbeddedPostgresError } from "./errors.js"

interface Content {
  readonly files: ReadonlyArray<{ readonly name: string; readonly size: bigint }>
  readonly links: ReadonlyArray<{ readonly source: string; readonly target: string }>
}

const concurrency = 16

/** The regular files; links that an install script already made are left out, so both kinds of install are the same. */
const contentOf = (directory: string, links: Content["links"]) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const made = new Set(links.map(({ target }) => target))
    const names = yield* fs.readDirectory(directory, { recursive: true })
    const entries = yield* Effect.forEach(
      names.filter((name) => !made.has(name)).sort(),
      (name) => Effect.map(fs.stat(path.join(directory, name)), ({ size, type }) => ({ name, size, type })),
      { concurrency }
    )
    return { files: entries.filter(({ type }) => type === "File"), links } satisfies Content
  })

/** A cleaner of temporary files may have taken some of them, so every use looks at all of them. */
const isComplete = (directory: string, content: Content) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const sizeOf = (name: string) => Effect.map(fs.stat(path.join(directory, name)), ({ size }) => size)
    const files = yield* Effect.forEach(
      content.files,
      ({ name, size }) => Effect.map(sizeOf(name), (found) => found === size),
      { concurrency }
    )
    yield* Effect.forEach(content.links, ({ target }) => sizeOf(target), { concurrency, discard: true })
    return files.every((same) => same)
  }).pipe(Effect.orElseSucceed(() => false))

const write = (from: string, to: string, content: Content) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const directories = new Set(content.files.map(({ name }) => path.dirname(name)))
    for (const directory of directories) yield* fs.makeDirectory(path.join(to, directory), { recursive: true })
    // Modes are set one by one: neither the umask nor the package manager may decide whether the account can read.
    const made = yield* fs.readDirectory(to, { recursive: true })
    yield* Effect.forEach(["", ...made], (name) => fs.chmod(path.join(to, name), 0o755), { discard: true })
    yield* Effect.forEach(
      content.files,
      ({ name }) =>
        Effect.zipRight(
          fs.copyFile(path.join(from, name), path.join(to, name)),
          fs.chmod(path.join(to, name), path.dirname(name) === "bin" ? 0o755 : 0o644)
        ),
      { concurrency, discard: true }
    )
    for (const { source, target } of content.links) {
      yield* fs.symlink(path.relative(path.dirname(target), source), path.join(to, target))
    }
  })

/** Anybody may make the directory of this name before we do: one that is not ours, we do not execute from. */
const refuseForeign = (directory: string) =>
  Effect.tryPromise(() => lstat(directory)).pipe(
    Effect.option,
    Effect.filterOrFail(
      Option.match({
        onNone: () => true,
        onSome: (found) => found.isDirectory() && found.uid === process.getuid?.() && (found.mode & 0o022) === 0
      }),
      () =>
        new EmbeddedPostgresError({
          phase: "prepare",
          message: `${directory} exists but is not this user's own directory. Remove it, or choose another \`directory\`.`
        })
    )
  )

/** Written aside and renamed into place: a name either is not there or is whole, whoever else is at it. */
const publish = (staging: string, target: string, content: Content) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const renamed = yield* Effect.option(fs.rename(staging, target))
    if (Option.isSome(renamed) || (yield* isComplete(target, content))) return
    yield* fs.rename(target, `${staging}-replaced`)
    yield* fs.rename(staging, target)
    // Somebody else may be replacing the same remains at this moment.
  }).pipe(Effect.retry({ times: 3 }))

const copyFor = (base: string, directory: string, packaged: Option.Option.Value<Binaries["packaged"]>) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const content = yield* contentOf(directory, packaged.links)
    const listing = JSON.stringify([content.files.map(({ name, size }) => [name, String(size)]), content.links])
    const hash = createHash("sha256").update(listing).digest("hex").slice(0, 12)
    const version = packaged.version.replace(/[^\w.-]/g, "_")
    const target = path.join(base, `effect-awa-postgres-${version}-${String(process.getuid?.())}-${hash}`)
    yield* refuseForeign(target)
    if (yield* isComplete(target, content)) return target
    const staging = yield* fs.makeTempDirectoryScoped({ directory: base, prefix: `${path.basename(target)}-` })
    const copy = path.join(staging, "copy")
    yield* fs.makeDirectory(copy)
    yield* write(directory, copy, content)
    yield* publish(copy, target, content)
    return target
  }).pipe(Effect.scoped)

/** The directory to run from: a cached copy of a package, any other build in its own place. */
export const reachable = ({ directory, packaged }: Binaries, base: string) =>
  Option.match(packaged, {
    onNone: () => Effect.succeed(directory),
    onSome: (found) => copyFor(base, directory, found)
  })
