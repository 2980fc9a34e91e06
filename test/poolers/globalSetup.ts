/** One pgbouncer before the server of the run, in the mode that the project is named after. */
import { Effect, Exit, Redacted, Scope } from "effect"
import { make } from "effect-awa/layers/EmbeddedPostgres"
import type { TestProject } from "vitest/node"
import { settings } from "../tools/globalSetup.js"
import { makePgBouncer } from "./pgbouncer.js"

const setup = async (project: TestProject) => {
  const mode = project.name === "session" ? "session" : "transaction"
  const scope = Effect.runSync(Scope.make())
  const close = () => Effect.runPromise(Scope.close(scope, Exit.void))
  const given = process.env["AWA_TEST_DATABASE_URL"]
  const program = Effect.gen(function* () {
    const server =
      given === undefined || given === "" ? Redacted.value((yield* make({ settings })).url("postgres")) : given
    const pooler = yield* makePgBouncer({ server, mode })
    project.provide("postgresUrl", server)
    project.provide("pooler", new URL(pooler.through(server)).host)
    project.provide("poolMode", mode)
  })
  await Effect.runPromise(Scope.extend(program, scope)).catch(async (cause: unknown) => {
    await close()
    throw cause
  })
  return close
}

export default setup
