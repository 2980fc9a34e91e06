import type { ChildProcessByStdio } from "node:child_process"
import { spawn } from "node:child_process"
import { existsSync } from "node:fs"
import { connect } from "node:net"
import { dirname, join } from "node:path"
import type { Readable } from "node:stream"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Schedule, Schema } from "effect"

const Report = Schema.parseJson(Schema.Struct({ port: Schema.Number, dataDir: Schema.String }))

interface Program {
  readonly child: ChildProcessByStdio<null, Readable, null>
  readonly server: typeof Report.Type
  readonly ended: Effect.Effect<void>
}

/** A program with a server of its own, once the server is up. */
const program = Effect.gen(function* () {
  const flags = ["--conditions=@effect-awa/source", "--import", "tsx", "--import", "./test/tools/oneInterrupt.ts"]
  const ended = yield* Deferred.make<void>()
  const child = yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn(process.execPath, [...flags, join(import.meta.dirname, "EmbeddedPostgres.child.ts")], {
        stdio: ["ignore", "pipe", "inherit"]
      })
    ),
    (started) => Effect.sync(() => started.kill("SIGKILL"))
  )
  child.once("exit", () => Deferred.unsafeDone(ended, Effect.void))
  const line = yield* Effect.async<string>((resume) => {
    child.stdout.once("data", (chunk: Buffer) => resume(Effect.succeed(chunk.toString())))
  })
  return { child, server: yield* Schema.decode(Report)(line), ended: Deferred.await(ended) } satisfies Program
})

/** Asked by its port: a dead process can keep its number for as long as nobody waits for it. */
const accepts = (port: number) =>
  Effect.async<boolean>((resume) => {
    const socket = connect(port, "127.0.0.1")
    socket.once("connect", () => {
      socket.destroy()
      resume(Effect.succeed(true))
    })
    socket.once("error", () => resume(Effect.succeed(false)))
  })

const isGone = ({ server }: Program) =>
  Effect.map(accepts(server.port), (accepted) => !accepted && !existsSync(dirname(server.dataDir)))

describe("a program with an embedded server", () => {
  it.scopedLive("takes it along when it is killed", () =>
    Effect.gen(function* () {
      const killed = yield* program
      assert.isTrue(yield* accepts(killed.server.port))
      killed.child.kill("SIGKILL")
      yield* Effect.repeat(isGone(killed), {
        until: (gone) => gone,
        schedule: Schedule.spaced("50 millis")
      }).pipe(Effect.timeout("30 seconds"))
    })
  )

  it.scopedLive("has stopped it when it ends by a signal", () =>
    Effect.gen(function* () {
      const terminated = yield* program
      terminated.child.kill("SIGTERM")
      yield* terminated.ended
      assert.isTrue(yield* isGone(terminated))
    })
  )

  it.scopedLive("has stopped it when npm repeats the terminal's Ctrl-C", () =>
    Effect.gen(function* () {
      const interrupted = yield* program
      interrupted.child.kill("SIGINT")
      yield* Effect.sleep("5 millis")
      interrupted.child.kill("SIGINT")
      yield* interrupted.ended
      assert.strictEqual(interrupted.child.signalCode, null)
      assert.isTrue(yield* isGone(interrupted))
    })
  )
})
