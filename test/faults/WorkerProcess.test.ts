/** F-52, F-54: processes end without a word. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Option, Schema, Scope } from "effect"
import { WorkerProcess } from "effect-awa/testing"

const program = new URL("WorkerProcess.child.mjs", import.meta.url)
const start = (options?: Partial<WorkerProcess.WorkerProcessOptions>) =>
  WorkerProcess.start({ program, execArgv: [], ...options })

const ended = (code: number | null, signal: NodeJS.Signals | null): WorkerProcess.WorkerExit => ({
  code: Option.fromNullable(code),
  signal: Option.fromNullable(signal)
})

const Said = Schema.parseJson(Schema.Struct({ now: Schema.Number, text: Schema.String, origin: Schema.Number }))

describe("a worker's process", () => {
  it.scopedLive("is heard, told to stop, and killed; how it ended is what the system says", () =>
    Effect.gen(function* () {
      const heard: Array<string> = []
      const onLine = (line: string, stream: string) => void heard.push(`${stream}: ${line}`)
      const stopped = yield* start({ onLine, env: { FAULTS_WORD: "politely" } })
      yield* stopped.ready
      assert.isTrue(yield* stopped.isRunning)
      assert.deepStrictEqual(yield* stopped.stop, ended(0, null))
      assert.includeMembers(heard, ["stderr: a word aside", "stdout: ready", "stdout: stopped politely"])
      assert.isFalse(yield* stopped.signal("SIGTERM"))

      const killed = yield* start()
      yield* killed.ready
      assert.deepStrictEqual(yield* killed.kill, ended(null, "SIGKILL"))
      assert.isFalse(yield* killed.isRunning)
    })
  )

  it.scopedLive("fails to be ready when it ends before, with its last words", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(Effect.flatMap(start({ args: ["fail"] }), ({ ready }) => ready))
      assert.strictEqual(error.reason, "EndedEarly")
      assert.include(error.message, "ended with 7")
      assert.include(error.lastLines, "a word aside")
    })
  )

  it.scopedLive("does not outlive its scope, even when it stands still", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const child = yield* Scope.extend(start(), scope)
      yield* child.ready
      assert.isTrue(yield* child.signal("SIGSTOP"))
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(yield* child.exit, ended(null, "SIGKILL"))
    })
  )

  for (const clockSkewMillis of [600_000, -600_000]) {
    it.scopedLive(`has a clock that is ${clockSkewMillis} ms ahead, in all its forms`, () =>
      Effect.gen(function* () {
        const [before, origin] = [Date.now(), performance.timeOrigin + performance.now()]
        const child = yield* start({ clockSkewMillis })
        yield* child.ready
        const [line = ""] = yield* child.lines
        const said = yield* Schema.decode(Said)(line)
        const after = Date.now()
        for (const time of [said.now, Date.parse(said.text)]) {
          assert.isAtLeast(time, before + clockSkewMillis)
          assert.isAtMost(time, after + clockSkewMillis)
        }
        assert.isAtLeast(said.origin, origin + clockSkewMillis - 1)
        assert.isAtMost(said.origin, after + clockSkewMillis + 1)
      })
    )
  }
})
