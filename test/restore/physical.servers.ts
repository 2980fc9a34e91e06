/** Copies of a server's files: transaction ids and sequences come along (contract C-01, C-34). */
import { describe, expect, it } from "@effect/vitest"
import { Effect, type Scope } from "effect"
import type * as ChildProcess from "node:child_process"
import * as Fs from "node:fs"
import { connect, type PgFault, type Session } from "../pg/database.js"
import { claim, close, complete, enqueue, only } from "../pg/engine.js"
import { fault } from "../pg/support.js"
import {
  accountOf,
  administer,
  adoptedRuns,
  debian,
  directoryFor,
  drain,
  fifteen,
  hasDebian,
  install,
  newest,
  populate,
  type Server,
  start,
  tool,
  urlOf
} from "./support.js"

if (!hasDebian) console.info(`skipped: pg_upgrade, since ${debian}/bin is not there`)

/** A server's url with the password of the one whose files it runs on. */
const copiedUrl = (copy: Server, original: Server, database = "app"): string => {
  const url = new URL(urlOf(original, database))
  url.port = String(copy.port)
  return url.href
}

/** A base backup as `pg_basebackup` takes it, of the data and then of the log, started in another place. */
const backUp = (
  original: Server,
  between: (session: Session) => Effect.Effect<void, PgFault>
): Effect.Effect<Server, unknown, Scope.Scope> =>
  Effect.gen(function* () {
    const copy = yield* newest({ wal_keep_size: "1GB" })
    yield* copy.stop("immediate")
    const { gid, uid } = accountOf(copy)
    Fs.rmSync(copy.dataDir, { recursive: true, force: true })
    const label = yield* Effect.scoped(
      Effect.gen(function* () {
        const session = yield* connect(urlOf(original))
        yield* session.value("select pg_backup_start('test', true)")
        yield* tool("cp", ["-a", original.dataDir, copy.dataDir]).pipe(
          Effect.catchAll(() => Effect.void) // files that went away meanwhile
        )
        yield* between(session)
        return only(yield* session.rows("select labelfile::text from pg_backup_stop(false)"))["labelfile"]
      })
    )
    Fs.rmSync(`${copy.dataDir}/pg_wal`, { recursive: true, force: true })
    yield* tool("cp", ["-a", `${original.dataDir}/pg_wal`, `${copy.dataDir}/pg_wal`])
    for (const file of ["postmaster.pid", "postmaster.opts"]) Fs.rmSync(`${copy.dataDir}/${file}`, { force: true })
    Fs.writeFileSync(`${copy.dataDir}/backup_label`, String(label))
    Fs.chownSync(`${copy.dataDir}/backup_label`, uid, gid)
    return copy
  })

describe("a physical backup", () => {
  it.scopedLive("keeps the cursors; a token from before it works there once, one from after it never", () =>
    Effect.gen(function* () {
      const original = yield* newest({ wal_keep_size: "1GB" })
      yield* install(original)
      const populated = yield* populate(urlOf(original))
      const here = yield* connect(urlOf(original))
      // what happens while the files are copied is in the log, and so in the copy
      const copy = yield* backUp(original, () =>
        Effect.asVoid(Effect.zipRight(enqueue(here, 5), claim(here, { limit: 1 })))
      )
      // not in the copy: the log was taken before
      const after = yield* claim(here, { limit: 2 })
      expect(after).toHaveLength(2)
      yield* copy.start
      const there = yield* connect(copiedUrl(copy, original))
      expect(yield* there.value("select awa.adopt_database()")).toBe("ours")

      const open = populated.open.map((attempt) => attempt.job_id)
      const [before, other] = populated.open
      if (before === undefined || other === undefined) throw new Error("attempts from before the backup")
      for (const attempt of after) {
        const refusal = yield* Effect.flip(complete(there, attempt))
        expect(["WA001", "WA003"]).toContain(refusal.code)
        expect(yield* close(there, [attempt])).toEqual(["stale"])
      }
      expect(yield* complete(there, before)).toMatchObject({ job_id: before.job_id, outcome: "completed" })
      yield* fault(complete(there, before), "WA001")
      // the same job under the same lease, perhaps in the same place: only the receipt tells the attempts apart
      const again = yield* claim(there, { limit: 2 })
      expect(again.map((attempt) => [attempt.job_id, attempt.run_lease])).toEqual(
        after.map((attempt) => [attempt.job_id, attempt.run_lease])
      )
      for (const attempt of after) {
        const refusal = yield* Effect.flip(complete(there, attempt))
        expect(["WA001", "WA003"]).toContain(refusal.code)
        expect(yield* close(there, [attempt])).toEqual(["stale"])
      }
      for (const attempt of again) yield* complete(there, attempt)

      // nothing is lost: the rest of the lane in its order, then what was being worked on
      const claimed = [...open, ...again.map((attempt) => attempt.job_id)]
      const rest = yield* drain(there)
      const behind = populated.runnable.filter((id) => !claimed.includes(id))
      expect(rest.filter((id) => populated.runnable.includes(id))).toEqual(behind.slice(1)) // one was claimed meanwhile
      expect(rest).toHaveLength(behind.length - 1 + 5)
      expect(yield* there.value("select awa.rescue_stale('0', 100)")).toBe(open.length - 1 + 1)
      yield* there.script("update awa.deferred_jobs set run_at = now() where run_at < now() + interval '1 minute'")
      yield* there.rows("select * from awa.promote_due(100)")
      expect([...(yield* drain(there))].sort((a, b) => Number(a - b))).toEqual(
        [...open.slice(1), behind[0] ?? 0n].sort((a, b) => Number(a - b))
      )
      // and the original went on by itself
      yield* complete(here, only(after.slice(0, 1)))
      yield* complete(here, before)
    })
  )
})

describe("a copy in the same cluster", () => {
  it.scopedLive("is adopted by itself, and tokens of the original are refused", () =>
    Effect.gen(function* () {
      const server = yield* newest()
      yield* install(server)
      const populated = yield* populate(urlOf(server))
      yield* administer(server, "create database copy template app")
      const there = yield* connect(urlOf(server, "copy"))
      for (const attempt of populated.open) yield* fault(complete(there, attempt), "WA003")
      expect(yield* start(server, "copy")).toBe("started")
      for (const attempt of populated.open) yield* fault(complete(there, attempt), "WA003")
      expect(yield* start(server)).toBe("started")
      const here = yield* connect(urlOf(server))
      for (const attempt of populated.open) yield* complete(here, attempt)
      yield* adoptedRuns(server, populated, "copy")
    })
  )
})

describe.skipIf(!hasDebian)("pg_upgrade", () => {
  it.scopedLive("carries the transaction ids on: the new identifier is adopted by itself", () =>
    Effect.gen(function* () {
      const [original, upgraded] = yield* Effect.all([fifteen(), fifteen()], { concurrency: 2 })
      yield* install(original)
      const populated = yield* populate(urlOf(original))
      const password = decodeURIComponent(new URL(urlOf(original)).password)
      yield* Effect.scoped(
        Effect.flatMap(connect(urlOf(upgraded, "postgres")), (session) =>
          session.script(`alter role postgres password '${password}'`)
        )
      )
      yield* original.stop("fast")
      yield* upgraded.stop("fast")
      const directory = yield* directoryFor(original)
      const options: ChildProcess.SpawnOptions = {
        cwd: directory,
        env: { PATH: process.env["PATH"], LC_ALL: "C", PGPASSWORD: password },
        ...(process.getuid?.() === 0 ? accountOf(original) : {})
      }
      yield* tool(
        `${debian}/bin/pg_upgrade`,
        [
          ...[`--old-datadir=${original.dataDir}`, `--new-datadir=${upgraded.dataDir}`],
          ...[
            `--old-bindir=${debian}/bin`,
            `--new-bindir=${debian}/bin`,
            "--username=postgres",
            `--socketdir=${directory}`
          ]
        ],
        options
      )
      yield* upgraded.start
      const url = copiedUrl(upgraded, original)
      const session = yield* connect(url)
      expect(yield* session.value("select awa.adopt_database()")).toBe("adopted")
      for (const attempt of populated.open) yield* fault(complete(session, attempt), "WA003")
      yield* adoptedRuns(upgraded, populated, "app", url)
    })
  )
})
