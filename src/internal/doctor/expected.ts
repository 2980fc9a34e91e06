import { createHash } from "node:crypto"
import { manifest, unfold } from "../manifest.js"
import { quoteIdentifier, type RenderOptions, renderSql } from "../renderSql.js"
import { functions } from "../schemaText.generated.js"

/** @internal A routine as this version of the library installs it. */
export interface ExpectedRoutine {
  readonly name: string
  /** As `pg_get_function_identity_arguments` says it. */
  readonly arguments: string
  readonly definer: boolean
  readonly language: string
  readonly volatility: string
  readonly settings: ReadonlyArray<string>
  /** As `pg_get_function_result` says it, all blanks taken for one; undefined where OUT parameters say it. */
  readonly result: string | undefined
  readonly defaults: number
  readonly bodyHash: string
  /** The statement that creates or replaces it. */
  readonly sql: string
}

const routinePattern = (quoted: string): RegExp =>
  new RegExp(
    `create or replace function ${quoted.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&")}\\.(\\w+)\\(([\\s\\S]*?)\\bas (\\$\\w*\\$)([\\s\\S]*?)\\3;`,
    "g"
  )

const parse = ({ ring, schema }: RenderOptions) =>
  functions.flatMap(({ text }) =>
    [...renderSql(text, { schema, ring }).matchAll(routinePattern(quoteIdentifier(schema)))].map(
      ([sql, name = "", header = "", , body = ""]) => ({ sql, name, header, body })
    )
  )

const blanks = (text: string): string =>
  text
    .replaceAll(/\s+/g, " ")
    .replaceAll(/ ?([()]) ?/g, "$1")
    .trim()

/** @internal */
export const sameResult = (text: string): string =>
  blanks(text)
    .replaceAll(/\btimestamptz\b/g, "timestamp with time zone")
    .replace(/^(setof|table)\b/i, (word) => word.toUpperCase())

/** A name that no keyword of SQL can be taken for: what a header says is read with it. */
const plainName = "awa"

const returned = /\breturns (table \([\s\S]*?\)|\S[\s\S]*?)\s+language\b/

const settingsOf = (header: string): ReadonlyArray<string> =>
  [...header.matchAll(/^\s*set (\w+) = (.+?)\s*$/gm)]
    .map(([, name = "", value = ""]) => `${name}=${value.replaceAll("'", "")}`)
    .sort()

/**
 * What is installed by the text of this library: its own statements, read again. Nothing is installed to learn it.
 *
 * @internal
 */
export const expectedRoutines = (target: RenderOptions): ReadonlyArray<ExpectedRoutine> => {
  const quoted = quoteIdentifier(target.schema)
  const argumentsOf = new Map(
    manifest.routines
      .flatMap((routine) => unfold(routine, target.ring))
      .map(({ arguments: types, name }) => [name, types.replaceAll("{schema}", () => quoted)])
  )
  const plain = parse({ ...target, schema: plainName })
  return parse(target).flatMap(({ body, name, sql }, index): ReadonlyArray<ExpectedRoutine> => {
    const types = argumentsOf.get(name)
    const header = plain[index]?.header
    if (types === undefined || header === undefined) return []
    const result = returned.exec(header)?.[1]
    return [
      {
        name,
        arguments: types,
        definer: /\bsecurity definer\b/.test(header),
        language: /\blanguage (\w+)/.exec(header)?.[1] ?? "",
        volatility: /\b(volatile|stable|immutable)\b/.exec(header)?.[1] ?? "volatile",
        settings: settingsOf(header),
        result: result === undefined ? undefined : sameResult(result.replaceAll(`"${plainName}"`, () => quoted)),
        defaults: header.match(/ default /g)?.length ?? 0,
        bodyHash: createHash("sha256").update(body).digest("hex"),
        sql
      }
    ]
  })
}
