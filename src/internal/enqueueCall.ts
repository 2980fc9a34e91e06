import { SqlError } from "@effect/sql/SqlError"
import * as DateTime from "effect/DateTime"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { Answer, EncodedJob, EnqueueAnswer, EnqueueOptions, Unique } from "../Enqueue.js"
import { DuplicateJob, PayloadRejected } from "../JobError.js"
import * as JobId from "../JobId.js"
import { awaCommand } from "./awaCommand.js"
import { defaultsFault } from "./jobRules.js"
import { isStorable, nameFault } from "./names.js"
import { quoteIdentifier } from "./renderSql.js"
import { sqlDetailOf, sqlMessageOf, sqlStateOf } from "./sqlState.js"
import { isStorableTime, storageFault } from "./storable.js"

/** Compact JSON; the server's own check allows for the spaces that it stores. */
const maxPayloadBytes = 1_048_576

/** The server takes 14 digits of milliseconds; what it refused would have failed the caller's transaction. */
const maxDurationMillis = 3_000 * 365 * 86_400_000

const isStorableDuration = (input: unknown): boolean =>
  Option.exists(Duration.decodeUnknown(input), (duration) => Duration.toMillis(duration) <= maxDurationMillis)

const optionFault = (options: EnqueueOptions): PayloadRejected | undefined => {
  const { delay, runAt } = options
  const fault = defaultsFault(options)
  if (fault !== undefined) return new PayloadRejected({ path: fault.option, rule: fault.rule })
  if (delay !== undefined && !isStorableDuration(delay)) {
    return new PayloadRejected({ path: "delay", rule: "expected a duration of at most 3000 years" })
  }
  if (runAt !== undefined && !isStorableTime(runAt)) {
    return new PayloadRejected({ path: "runAt", rule: "expected a time from the year 1 to 9999" })
  }
  if (delay !== undefined && runAt !== undefined) {
    return new PayloadRejected({ path: "runAt", rule: "not together with delay" })
  }
  return options.unique === undefined || options.unique === false ? undefined : uniqueFault(options.unique)
}

const maxKeyBytes = 8192
const uniqueParts: ReadonlyArray<unknown> = ["kind", "queue", "args"]

// The types say most of it; a program that is not type-checked is told the same.
const uniqueFault = ({ by, key, onConflict, states, window }: Unique): PayloadRejected | undefined => {
  const rejected = (field: string, rule: string) => new PayloadRejected({ path: `unique.${field}`, rule })
  const parts: unknown = by
  if (parts !== undefined && !(Array.isArray(parts) && parts.every((part: unknown) => uniqueParts.includes(part)))) {
    return rejected("by", "expected a list of kind, queue and args")
  }
  if (by?.length === 0 && key === undefined) return rejected("by", "expected one of kind, queue and args, or a key")
  if (key !== undefined) {
    if (typeof key !== "string" || key === "") return rejected("key", "expected a non-empty text")
    if (!isStorable(key)) return rejected("key", "no NUL character and no lone surrogate")
    if (Buffer.byteLength(key, "utf8") > maxKeyBytes) return rejected("key", `at most ${maxKeyBytes} bytes`)
  }
  if (states !== undefined && !["unclaimed", "incomplete", "successful", "all"].includes(states)) {
    return rejected("states", "expected unclaimed, incomplete, successful or all")
  }
  if (onConflict !== undefined && !["skip", "replace", "error"].includes(onConflict)) {
    return rejected("onConflict", "expected skip, replace or error")
  }
  if (window === undefined) {
    return states === "successful" || states === "all"
      ? rejected("window", "required when states is successful or all")
      : undefined
  }
  return isStorableDuration(window) && Duration.toMillis(window) > 0
    ? undefined
    : rejected("window", "expected a duration longer than none, of at most 3000 years")
}

const uniqueOptions = ({ by, key, onConflict, states, window }: Unique): Record<string, unknown> => ({
  by,
  key,
  states,
  window_ms: window === undefined ? undefined : Math.ceil(Duration.toMillis(window)),
  on_conflict: onConflict
})

/** What jobs of a call may have in common: who runs them, where, and how. */
const headFault = (kind: string, options: EnqueueOptions): PayloadRejected | undefined => {
  const kindFault = nameFault(kind)
  if (kindFault !== undefined) return new PayloadRejected({ path: "kind", rule: kindFault })
  return optionFault(options)
}

const queueOf = (options: EnqueueOptions): string => options.queue ?? "default"

const optsText = (options: EnqueueOptions): string => {
  const opts: Record<string, unknown> = {}
  if (options.priority !== undefined) opts["priority"] = options.priority
  if (options.maxAttempts !== undefined) opts["max_attempts"] = options.maxAttempts
  if (options.runAt !== undefined) opts["run_at"] = DateTime.formatIso(DateTime.toUtc(options.runAt))
  if (options.delay !== undefined) opts["delay_ms"] = Math.ceil(Duration.toMillis(options.delay))
  if (options.notify === false) opts["notify"] = false
  if (options.unique !== undefined && options.unique !== false) opts["unique"] = uniqueOptions(options.unique)
  return JSON.stringify(opts)
}

const argsText = (args: unknown): string | PayloadRejected => {
  const fault = storageFault(args, "payload")
  if (fault !== undefined) return new PayloadRejected(fault)
  const text = JSON.stringify(args)
  // a UTF-16 unit is three bytes of UTF-8 at most
  return text.length * 3 > maxPayloadBytes && Buffer.byteLength(text, "utf8") > maxPayloadBytes
    ? new PayloadRejected({ path: "payload", rule: "at most 1 MiB of JSON" })
    : text
}

/** @internal A job as `insert_jobs` takes it, or what of it PostgreSQL could not store or breaks a rule. */
export const encodeJob = ({ args, kind, options }: EncodedJob): Effect.Effect<string, PayloadRejected> =>
  Effect.suspend(() => {
    const fault = headFault(kind, options)
    if (fault !== undefined) return fault
    const text = argsText(args)
    return typeof text === "string"
      ? Effect.succeed(
          `{"kind":${JSON.stringify(kind)},"queue":${JSON.stringify(queueOf(options))},"opts":${optsText(options)},"args":${text}}`
        )
      : text
  })

/** @internal Jobs that differ in nothing but their payloads, as the parameters of `batchText`. */
export const encodeBatch = (
  kind: string,
  payloads: ReadonlyArray<unknown>,
  options: EnqueueOptions
): Effect.Effect<ReadonlyArray<string>, PayloadRejected> =>
  Effect.suspend(() => {
    const fault = headFault(kind, options)
    if (fault !== undefined) return fault
    const texts: Array<string> = []
    for (const payload of payloads) {
      const text = argsText(payload)
      if (typeof text !== "string") return text
      texts.push(text)
    }
    return Effect.succeed([kind, jobsText(texts), queueOf(options), optsText(options)])
  })

const decodeDuplicate = Schema.decodeUnknownOption(
  Schema.parseJson(Schema.Struct({ index: Schema.Int, job_id: Schema.NullOr(Schema.String) }))
)

/** A key that is taken; not another unique constraint that the statement of the caller's own trigger met. */
const duplicate = (error: unknown): Option.Option<DuplicateJob> =>
  Option.map(
    decodeDuplicate(sqlDetailOf(error)),
    ({ index, job_id }) => new DuplicateJob({ index, jobId: job_id === null ? undefined : JobId.make(BigInt(job_id)) })
  )

/** @internal What the refusal of `insert_batch` means. */
export const refusedBatch = <E>(error: E): PayloadRejected | E => {
  const state = Option.getOrUndefined(sqlStateOf(error))
  return state === "22023" || state === "WA005" || state === "22P05" || state === "54000"
    ? new PayloadRejected({ path: "job", rule: sqlMessageOf(error) })
    : error
}

/** @internal What the refusal of `insert_jobs` means. */
export const refusedJobs = <E>(error: E): PayloadRejected | DuplicateJob | E =>
  Option.contains(sqlStateOf(error), "23505") ? Option.getOrElse(duplicate(error), () => error) : refusedBatch(error)

/** `invalid_schema_name`, `undefined_table`, `undefined_function`: nothing is installed, or an older version. */
const missing: ReadonlyArray<string> = ["3F000", "42P01", "42883"]

/** Whether the server names the schema, in whatever language, and not a table of the application that merely begins so. */
const namesSchema = (message: string, schema: string): boolean => {
  const escaped = schema.replaceAll(/[\\^$.*+?()[\]{}|/]/g, String.raw`\$&`)
  return new RegExp(String.raw`(?<![\p{L}\p{N}_$])${escaped}(?![\p{L}\p{N}_$])`, "u").test(message)
}

/** @internal What is not installed is said at once: the client's own message says only that a statement failed. */
export const saidMissing =
  (schema: string) =>
  (error: SqlError): SqlError => {
    const said = sqlMessageOf(error)
    const isMissing = Option.exists(sqlStateOf(error), (state) => missing.includes(state)) && namesSchema(said, schema)
    return isMissing
      ? new SqlError({
          cause: error.cause,
          message: `effect-awa is not installed in schema ${JSON.stringify(schema)} of this database, or an older version is: ${said}; run ${awaCommand("migrate", schema)}`
        })
      : error
  }

const isAnswer = (value: unknown): value is Answer =>
  value === "inserted" || value === "existing" || value === "replaced"

/** @internal One call for any number of jobs; its one parameter is `jobsText`. */
export const insertText = (schema: string): string =>
  `select j.job_id::text as id, j.answer from ${quoteIdentifier(schema)}.insert_jobs($1::text::jsonb) j`

/** @internal */
export const jobsText = (encoded: ReadonlyArray<string>): string => `[${encoded.join(",")}]`

/** @internal One call for jobs that differ in nothing but their payloads. */
export const batchText = (schema: string): string =>
  `select ${quoteIdentifier(schema)}.insert_batch($1, $2::text::jsonb, $3, $4::text::jsonb)::text as ids`

/** @internal The ids in the order of the payloads; undefined when they are not one for each. */
export const readIds = (text: unknown, expected: number): ReadonlyArray<JobId.JobId> | undefined => {
  if (typeof text !== "string") return undefined
  const ids = text.slice(1, -1).split(",")
  return ids.length === expected
    ? ids.map((id) => JobId.JobId.make(BigInt(id), { disableValidation: true }))
    : undefined
}

/** @internal The answers in the order of the jobs; undefined when these rows are not one for each. */
export const readAnswers = (
  rows: ReadonlyArray<readonly [id: unknown, answer: unknown]>,
  expected: number
): ReadonlyArray<EnqueueAnswer> | undefined => {
  const answers = rows.flatMap(([id, answer]): ReadonlyArray<EnqueueAnswer> =>
    typeof id === "string" && isAnswer(answer) ? [{ id: JobId.make(BigInt(id)), answer }] : []
  )
  return answers.length === expected ? answers : undefined
}
