/**
 * A finalizer cannot run in a process that was killed. This small process notices and cleans up in its place.
 */
import { spawn } from "node:child_process"
import { Socket } from "node:net"
import { Effect } from "effect"
import { EmbeddedPostgresError } from "./errors.js"
import { spawnOptions } from "./execute.js"
import type { Installation } from "./serverProcess.js"

/**
 * Its standard input is a pipe whose other end only we hold, so the end of the input is the end of us. It runs as the
 * server's account, so it can do no more than the server could. Repeats: a server killed in its first moment has not
 * written its pid file yet, and `initdb` may still be writing.
 */
const script = `
trap '' HUP INT TERM
read -r word && [ "$word" = released ] && exit 0
for attempt in 1 2 3 4 5; do
  "$1" -D "$2" -m immediate -t 10 -w stop
  rm -rf "$3"
  sleep 1
  [ -e "$3" ] || exit 0
done
`

const start = ({ account, binaries, workspace }: Installation) =>
  Effect.async<Socket, EmbeddedPostgresError>((resume) => {
    const child = spawn(
      "/bin/sh",
      ["-c", script, "effect-awa-watchdog", `${binaries}/bin/pg_ctl`, workspace.data, workspace.root],
      { ...spawnOptions(account, "/"), stdio: ["pipe", "ignore", "ignore"] }
    )
    child.once("error", (cause) =>
      resume(new EmbeddedPostgresError({ phase: "prepare", message: "No watchdog started", cause }))
    )
    child.once("spawn", () => {
      // Neither the process nor the pipe is a reason for this program to stay alive.
      child.unref()
      if (child.stdin instanceof Socket) {
        child.stdin.unref()
        child.stdin.on("error", () => {})
        resume(Effect.succeed(child.stdin))
      }
    })
  })

/** While the scope is open, the workspace and the server in it do not survive this process. */
export const guard = (installation: Installation) =>
  Effect.acquireRelease(start(installation), (pipe) =>
    Effect.async<void>((resume) => {
      pipe.end("released\n", () => resume(Effect.void))
    })
  )
