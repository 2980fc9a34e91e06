import * as Effect from "effect/Effect"
import {
  type ForeignSchema,
  MigrationBusy,
  MigrationFailed,
  type RingSizeFixed,
  type SchemaTooNew
} from "../MigrationError.js"
import type { Connection } from "./migrateConnection.js"
import { look } from "./migrateLook.js"
import { actAsOwner } from "./migrateOwners.js"
import { makePlan, type Plan } from "./migratePlan.js"
import * as Script from "./migrateScript.js"
import type { RenderOptions } from "./renderSql.js"
import { functionsRevision } from "./schemaText.generated.js"

/** @internal */
export interface RunOptions {
  readonly schema: string
  readonly ring: number | undefined
  readonly lockMillis: number
}

/** @internal Everything before COMMIT can be tried again at any time; so can COMMIT, since a migration is idempotent. */
export interface Outcome {
  readonly plan: Plan
  readonly applied: ReadonlyArray<string>
}

/** A file of the schema holds many statements, each bounded by the server on its own. */
const messageMillis = Script.limits.statement * 3

const stepsOf = (
  plan: Plan,
  target: RenderOptions,
  owners: Script.Owners | undefined,
  ownsTables: boolean
): ReadonlyArray<Script.Step> => {
  switch (plan._tag) {
    case "Nothing":
      // a newer library has a manifest of its own
      return plan.newer || !ownsTables ? [] : Script.privilegeSteps(target, owners)
    case "Install":
      return [
        ...(plan.createSchema ? [Script.createSchema(target)] : []),
        ...Script.migrationSteps(target, 0),
        ...Script.replacementSteps(target)
      ]
    case "Upgrade":
      return [...Script.migrationSteps(target, plan.from), ...Script.replacementSteps(target, owners)]
    case "Refresh":
      return Script.replacementSteps(target, owners)
  }
}

const takeLock = (connection: Connection, options: RunOptions): Effect.Effect<void, MigrationBusy | MigrationFailed> =>
  connection.execute("lock", Script.lock(options.schema), options.lockMillis + messageMillis).pipe(
    Effect.catchIf(
      (error) => error.sqlState === "55P03",
      () => new MigrationBusy({ schema: options.schema, waitedMillis: options.lockMillis })
    )
  )

const commit = (connection: Connection): Effect.Effect<void, MigrationFailed> =>
  connection.execute("commit", "commit", messageMillis).pipe(
    // a transaction that a failed statement aborted answers ROLLBACK, without an error (C-42)
    Effect.filterOrFail(
      (command) => command === "COMMIT",
      (command) => new MigrationFailed({ step: "commit", reason: `the server answered ${command}` })
    )
  )

/**
 * The migration, on a connection of its own: one transaction. The lock comes first, so that what is looked at afterwards
 * is what stands until the end; each statement of READ COMMITTED sees what was committed before it.
 *
 * @internal
 */
export const run = (
  connection: Connection,
  options: RunOptions
): Effect.Effect<Outcome, MigrationBusy | MigrationFailed | ForeignSchema | SchemaTooNew | RingSizeFixed> =>
  Effect.gen(function* () {
    const { ring, schema } = options
    yield* connection.execute("begin", Script.begin(options.lockMillis), messageMillis)
    yield* takeLock(connection, options)
    yield* connection.execute("begin", Script.boundStatements, messageMillis)
    const { owners, ownsTables } = yield* actAsOwner(connection, schema)
    const found = yield* look(connection, schema)
    const plan = yield* makePlan(found, {
      schema,
      ring,
      version: Script.latestVersion,
      hash: (ring) => Script.renderedHash({ schema, ring }),
      revision: functionsRevision
    })
    const steps = stepsOf(plan, { schema, ring: plan.ring }, owners, ownsTables)
    yield* Effect.forEach(steps, (step) => connection.execute(step.name, step.sql, messageMillis), { discard: true })
    yield* commit(connection)
    const migrations = Script.migrationSteps({ schema, ring: plan.ring }, 0).map((step) => step.name)
    return { plan, applied: migrations.filter((name) => steps.some((step) => step.name === name)) }
  }).pipe(Effect.tapError(() => connection.execute("rollback", "rollback", 5_000).pipe(Effect.ignore)))
