#!/usr/bin/env node
import * as NodeContext from "@effect/platform-node/NodeContext"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as Effect from "effect/Effect"
import { exitCode, run } from "../../src/cli/awa.js"

// A reader that has seen enough (`awa migrate --print | head`) is no error.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error
  process.exit(0)
})

run(process.argv).pipe(
  Effect.provide(NodeContext.layer),
  // the command has said what went wrong
  NodeRuntime.runMain({
    disableErrorReporting: true,
    teardown: (exit, onExit) => onExit(exitCode(process.argv, exit))
  })
)
