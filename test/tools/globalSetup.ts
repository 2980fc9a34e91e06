/**
 * One PostgreSQL server for the whole run: an embedded one, or the one that AWA_TEST_DATABASE_URL names. Test files find a
 * superuser's url by `inject("postgresUrl")` and make their own databases on it.
 */
import { make } from "effect-awa/layers/EmbeddedPostgres"
import { Effect, Exit, Redacted, Scope } from "effect"
import pg from "pg"
import type { TestProject } from "vitest/node"
import { isStrict, rolesText } from "./strictRoles.js"

declare module "vitest" {
  // The merged interface is vitest's.
  export interface ProvidedContext {
    /** A superuser's connection string to the server's `postgres` database. */
    readonly postgresUrl: string
  }
}

export const settings = {
  // The data does not outlive the run. Commits still wait as they do in production: synchronous_commit stays on.
  fsync: "off",
  full_page_writes: "off",
  max_connections: "200",
  max_prepared_transactions: "20"
}

const makeRoles = async (url: string) => {
  if (!isStrict) return
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query(rolesText)
  await client.end()
}

/** A pooler that somebody else started before the server, as `npm run test:matrix` does. */
const providePooler = (project: TestProject): void => {
  const pooler = process.env["AWA_TEST_POOLER"]
  if (pooler === undefined || pooler === "") return
  project.provide("pooler", pooler)
  project.provide("poolMode", process.env["AWA_TEST_POOL_MODE"] === "session" ? "session" : "transaction")
}

const setup = async (project: TestProject) => {
  providePooler(project)
  const given = process.env["AWA_TEST_DATABASE_URL"]
  if (given !== undefined && given !== "") {
    await makeRoles(given)
    project.provide("postgresUrl", given)
    return () => Promise.resolve()
  }
  const scope = Effect.runSync(Scope.make())
  const close = () => Effect.runPromise(Scope.close(scope, Exit.void))
  const server = await Effect.runPromise(make({ settings }).pipe(Scope.extend(scope))).catch(async (cause: unknown) => {
    await close()
    throw cause
  })
  const url = Redacted.value(server.url("postgres"))
  await makeRoles(url)
  project.provide("postgresUrl", url)
  return close
}

export default setup
