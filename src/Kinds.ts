/**
 * Kinds for other languages: the payloads of job definitions as JSON Schema, in files, in the database, and as stubs of
 * producers and workers.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as JSONSchema from "effect/JSONSchema"
import * as Schema from "effect/Schema"
import type { Definition } from "./internal/kindModel.js"
import { goStubs } from "./internal/kindStubsGo.js"
import { pythonStubs } from "./internal/kindStubsPython.js"
import { connect } from "./internal/migrateConnection.js"
import { checkSchema } from "./internal/migrateOptions.js"
import { quoteIdentifier } from "./internal/renderSql.js"
import * as JobDefinition from "./JobDefinition.js"
import { KindNotExportable } from "./KindsError.js"
import type { StorageOptions } from "./Storage.js"
import {
  InvalidStorageOption,
  type StorageError,
  StorageFailed,
  StorageMissing,
  StorageUnreachable
} from "./StorageError.js"

/**
 * A kind as other languages know it: the JSON Schema of the payload as it is stored, and what its definition says of its jobs.
 *
 * @since 0.1.0
 * @category schemas
 */
export const Kind = Schema.Struct({
  kind: Schema.String,
  schema: Schema.Record({ key: Schema.String, value: Schema.Unknown }),
  queue: Schema.optional(Schema.String),
  priority: Schema.optional(Schema.Int),
  maxAttempts: Schema.optional(Schema.Int)
})

/**
 * @since 0.1.0
 * @category models
 */
export type Kind = typeof Kind.Type

/** The schema of what is stored. Refinements up to the first transformation are part of it. */
const jsonSchema = ({
  kind,
  payload
}: JobDefinition.JobDefinition): Effect.Effect<Kind["schema"], KindNotExportable> => {
  const schema = Schema.make<unknown, unknown>(payload)
  const attempt = (side: Schema.Schema<unknown>) =>
    Effect.try({
      try: (): Kind["schema"] => ({ ...JSONSchema.make(side) }),
      catch: (cause) =>
        new KindNotExportable({
          kind,
          reason: cause instanceof Error ? cause.message.replaceAll(/\s+/g, " ") : String(cause)
        })
    })
  // a recursive schema may have lost its identifier on the encoded side; JSONSchema takes that side of it by itself
  return Effect.orElse(attempt(Schema.encodedBoundSchema(schema)), () => attempt(schema))
}

/**
 * The kinds among the values of a module, in the order of their names. Fails with `KindNotExportable` on a payload without a
 * JSON Schema, and on two definitions of one kind.
 *
 * @example
 * ```ts
 * import { Schema } from "effect"
 * import { Job, Kinds } from "effect-awa"
 *
 * const Greet = Job.make("greet", { payload: Schema.Struct({ name: Schema.String }) })
 * export const kinds = Kinds.describe([Greet])
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const describe = (values: Iterable<unknown>): Effect.Effect<ReadonlyArray<Kind>, KindNotExportable> =>
  Effect.gen(function* () {
    const definitions = [...new Set([...values].filter(JobDefinition.isDefined))]
      .map((job) => job[JobDefinition.TypeId])
      .sort((a, b) => (a.kind < b.kind ? -1 : 1))
    const kinds: Array<Kind> = []
    for (const definition of definitions) {
      const { kind, maxAttempts, priority, queue } = definition
      if (kinds.at(-1)?.kind === kind) return yield* new KindNotExportable({ kind, reason: "it is defined twice" })
      kinds.push({
        kind,
        schema: yield* jsonSchema(definition),
        ...(queue === undefined ? {} : { queue }),
        ...(priority === undefined ? {} : { priority }),
        ...(maxAttempts === undefined ? {} : { maxAttempts })
      })
    }
    return kinds
  })

const operation = "register the kinds"

const Answers = Schema.Array(
  Schema.Struct({
    kind: Schema.String,
    answer: Schema.Literal("registered", "changed", "unchanged"),
    unchecked: Schema.Array(Schema.String)
  })
)

/**
 * What became of one kind, and the places and keywords of its schema that the database does not check.
 *
 * @since 0.1.0
 * @category models
 */
export type Registered = (typeof Answers.Type)[number]

/**
 * Registers kinds in the database, all or none, for enqueues that say `validate`. Fails with `StorageFailed` (SQLSTATE 22023)
 * on a schema that cannot be one.
 *
 * @example
 * ```ts
 * import { Effect, Redacted, Schema } from "effect"
 * import { Job, Kinds } from "effect-awa"
 *
 * const Greet = Job.make("greet", { payload: Schema.Struct({ name: Schema.String }) })
 * export const program = Kinds.describe([Greet]).pipe(
 *   Effect.flatMap((kinds) => Kinds.register({ url: Redacted.make("postgres://localhost/app") }, kinds))
 * )
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const register = (
  options: StorageOptions,
  kinds: ReadonlyArray<Kind>
): Effect.Effect<ReadonlyArray<Registered>, StorageError> =>
  Effect.gen(function* () {
    const schema = yield* checkSchema(options.schema ?? "awa")
    const connection = yield* connect(options.url, "effect-awa kinds")
    const parameter = kinds.map(({ maxAttempts, ...kind }) => ({ ...kind, max_attempts: maxAttempts }))
    const rows = yield* connection.query(
      operation,
      `select kind, answer, to_jsonb(unchecked) as unchecked from ${quoteIdentifier(schema)}.register_kinds($1::text::jsonb)`,
      [JSON.stringify(parameter)],
      30_000
    )
    return yield* Schema.decodeUnknown(Answers)(rows)
  }).pipe(
    Effect.catchTags({
      InvalidMigrationOption: ({ option, rule }) => new InvalidStorageOption({ option, rule }),
      MigrationConnectionFailed: ({ reason, sqlState }) => new StorageUnreachable({ sqlState, reason }),
      MigrationFailed: ({ reason, sqlState }): StorageFailed | StorageMissing =>
        sqlState === "42883" || sqlState === "3F000"
          ? new StorageMissing({ schema: options.schema ?? "awa" })
          : new StorageFailed({ operation, sqlState, reason }),
      ParseError: ({ message }) => new StorageFailed({ operation, reason: message })
    }),
    Effect.scoped
  )

/**
 * @since 0.1.0
 * @category models
 */
export interface StubOptions {
  readonly language: "python" | "go"
  /** The schema that effect-awa is installed in; `awa` unless said otherwise. */
  readonly schema?: string | undefined
}

/**
 * A file to be written. `written once` is to be filled in, and is left alone when it is there already.
 *
 * @since 0.1.0
 * @category models
 */
export interface StubFile {
  readonly name: string
  readonly text: string
  readonly mode: "generated" | "written once"
}

/**
 * Typed payloads, a function for each kind that enqueues in the caller's transaction, and a skeleton of each handler.
 *
 * @example
 * ```ts
 * import { Kinds } from "effect-awa"
 *
 * export const files = Kinds.stubs([{ kind: "greet", schema: { type: "string" } }], { language: "go" })
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const stubs = (kinds: ReadonlyArray<Kind>, options: StubOptions): ReadonlyArray<StubFile> => {
  const definitions: ReadonlyArray<Definition> = kinds
  const schema = quoteIdentifier(options.schema ?? "awa")
  const { producer, worker } = (options.language === "go" ? goStubs : pythonStubs)(definitions, schema)
  return [
    { ...producer, mode: "generated" },
    { ...worker, mode: "written once" }
  ]
}
