import * as Command from "@effect/cli/Command"
import * as Options from "@effect/cli/Options"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { InvalidMigrationOption } from "../MigrationError.js"
import * as Roles from "../Roles.js"
import { databaseUrl, schema, urlOf, urlRule } from "./options.js"

const profile = Options.choice("profile", ["strict", "compatible"]).pipe(
  Options.withDescription("strict: roles of their own own tables and routines; compatible: the owner stays as it is.")
)

const part = Options.choice("part", ["roles", "privileges"]).pipe(
  Options.optional,
  Options.withDescription("Only what needs CREATEROLE (roles), or only what the schema's owner does (privileges).")
)

const name = (option: string, description: string) =>
  Options.text(option).pipe(Options.optional, Options.withDescription(description))

const bound = (capability: string, description: string) =>
  Options.text(capability).pipe(
    Options.repeated,
    Options.withDescription(`A role that ${description}; can be repeated.`)
  )

const options = {
  databaseUrl,
  schema,
  profile,
  part,
  schemaOwner: name("schema-owner", "Strict: owns schema and tables; <database>_<schema>_owner."),
  executionOwner: name("execution-owner", "Strict: owns the routines; <database>_<schema>_execution."),
  migrator: name("migrator", "Strict: the only role that can become the owners; the one that connects."),
  producer: bound("producer", "enqueues"),
  finalizer: bound("finalizer", "completes a job in its own transaction"),
  batchFinalizer: bound("batch-finalizer", "completes many jobs in one transaction"),
  expectation: bound("expectation", "may call expect_completion beside complete_job"),
  executor: bound("executor", "claims and runs jobs"),
  maintenance: bound("maintenance", "leads maintenance, beside executor"),
  callback: bound("callback", "answers callbacks by their ids"),
  adminReader: bound("admin-reader", "may look"),
  adminMutator: bound("admin-mutator", "cancels, redrives and pauses, beside admin-reader"),
  withoutTimeouts: Options.boolean("without-timeouts").pipe(
    Options.withDescription("Set no timeouts for the roles of finalizers.")
  )
}

type Given = Command.Command.ParseConfig<typeof options>

const rolesOptions = (given: Given): Effect.Effect<Roles.RolesOptions, InvalidMigrationOption> =>
  Effect.map(
    Effect.catchTag(
      urlOf(given.databaseUrl),
      "ConfigError",
      () => new InvalidMigrationOption({ option: "url", rule: urlRule })
    ),
    (url) => ({
      url,
      schema: given.schema,
      profile: given.profile,
      part: Option.getOrUndefined(given.part),
      schemaOwner: Option.getOrUndefined(given.schemaOwner),
      executionOwner: Option.getOrUndefined(given.executionOwner),
      migrator: Option.getOrUndefined(given.migrator),
      bindings: {
        producer: given.producer,
        finalizer: given.finalizer,
        batch_finalizer: given.batchFinalizer,
        expectation: given.expectation,
        executor: given.executor,
        maintenance: given.maintenance,
        callback: given.callback,
        admin_reader: given.adminReader,
        admin_mutator: given.adminMutator
      },
      finalizerTimeouts: given.withoutTimeouts ? false : undefined
    })
  )

const plan = Command.make("plan", options, (given) =>
  Effect.flatMap(Effect.flatMap(rolesOptions(given), Roles.plan), (sql) => Console.log(sql.trimEnd()))
).pipe(Command.withDescription("Print the SQL of `apply`, to be reviewed. Nothing is written."))

const apply = Command.make("apply", options, (given) =>
  Effect.zipRight(
    Effect.flatMap(rolesOptions(given), Roles.apply),
    Console.log(`The roles of schema ${JSON.stringify(given.schema)} are as asked for (${given.profile}).`)
  )
).pipe(Command.withDescription("Create what roles are missing, hand over ownership, and grant exactly what is bound."))

/** @internal */
export const roles = Command.make("roles").pipe(
  Command.withDescription("Who may do what: least privilege, from the manifest."),
  Command.withSubcommands([plan, apply])
)
