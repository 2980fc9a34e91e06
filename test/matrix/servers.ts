/** A server of a major, and the poolers before it, for as long as the scope. */
import { Data, Effect, Redacted } from "effect"
import { make } from "effect-awa/layers/EmbeddedPostgres"
import { passwordOf, strictRoles } from "../../layers/testing/internal/strictRoles.js"
import { binariesOf, type Major } from "../majors/binaries.js"
import { makePgBouncer, type PoolMode } from "../poolers/pgbouncer.js"
import { settings } from "../tools/globalSetup.js"
import type { Cell } from "./dimensions.js"

class WrongServer extends Data.TaggedError("WrongServer")<{ readonly version: string }> {}

const isMode = (pooler: Cell["pooler"]): pooler is PoolMode => pooler !== "none"

export const serverOf = (major: Major, poolers: ReadonlySet<Cell["pooler"]>) =>
  Effect.gen(function* () {
    const binaries = binariesOf(major)
    const server = yield* make({ settings, ...(binaries === undefined ? {} : { binaries }) })
    if (!server.version.startsWith(`${major}.`)) return yield* new WrongServer({ version: server.version })
    const url = Redacted.value(server.url("postgres"))
    // the strict profile's programs are no superusers, and the pooler has to know them
    const password = passwordOf(url)
    const users = { [strictRoles.application]: password, [strictRoles.runtime]: password }
    const addresses = yield* Effect.forEach([...poolers].filter(isMode), (mode) =>
      Effect.map(makePgBouncer({ server: url, mode, users }), (pooler): readonly [Cell["pooler"], string] => [
        mode,
        new URL(pooler.through(url)).host
      ])
    )
    return { url, poolers: new Map(addresses) }
  })
