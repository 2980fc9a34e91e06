import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { DatabaseError, StartRefused } from "../../PoolError.js"
import type { RuntimePool } from "../../RuntimePool.js"
import { awaCommand } from "../awaCommand.js"
import { renderedHash } from "../migrateScript.js"
import { quoteIdentifier, type RenderOptions } from "../renderSql.js"
import { finding } from "./finding.js"
import { ofCatalogs } from "./installation.js"
import { InstalledRow, installedSql } from "./look.js"

/** Whether this version of the library installed the functions; asked only when they are not as it would. */
const isOurs = (call: RuntimePool["Type"]["call"], target: RenderOptions) =>
  Effect.map(
    call({
      name: "strict-start-version",
      text: `select m.rendered_hash from ${quoteIdentifier(target.schema)}.meta m`,
      values: []
    }),
    ([row]) => row?.[0] === renderedHash(target)
  )

/**
 * What `awa doctor --strict` calls an error of the contract's core (C-53): routines, owners, PUBLIC's privileges and the role graph,
 * in one statement of the runtime's own, or two. Who is bound a runtime may not read, so exact privileges are left to doctor.
 *
 * @internal
 */
export const strictStart = (
  { call }: Pick<RuntimePool["Type"], "call">,
  schema: string
): Effect.Effect<void, DatabaseError | StartRefused> =>
  Effect.gen(function* () {
    const operation = "strict-start"
    const [row] = yield* call({ name: operation, text: installedSql, values: [schema], timeoutMillis: 30_000 })
    const [{ installed }] = yield* Effect.mapError(
      Schema.decodeUnknown(InstalledRow)([{ installed: row?.[0] }]),
      (error) => new DatabaseError({ operation, retryable: false, reason: error.message })
    )
    if (installed === null) return // the start itself says so
    const subject = { schema, installed, bindings: undefined, migrator: undefined }
    const look = (isThisVersion: boolean) =>
      ofCatalogs(subject, isThisVersion)
        .map((found) => finding(found, true))
        .filter(({ severity }) => severity === "error")
    let errors = look(true)
    if (errors.length > look(false).length && !(yield* isOurs(call, { schema, ring: installed.ring }))) {
      yield* Effect.logWarning("Another version of the library installed the schema: its definitions were not compared")
      errors = look(false)
    }
    if (errors.length === 0) return
    const codes = [...new Set(errors.map(({ code }) => code))]
    const shown = errors.slice(0, 3).map(({ code, found, object }) => `${code}: ${object}: ${found}`)
    return yield* new StartRefused({
      reason: "not-strict",
      detail: `${shown.join("; ")}${errors.length > 3 ? `; and ${errors.length - 3} more` : ""}; run ${awaCommand("doctor --strict", schema)}`,
      codes
    })
  })
