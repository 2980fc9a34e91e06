import { type ExpectedRoutine, expectedRoutines, sameResult } from "./expected.js"
import { quoteIdentifier } from "../renderSql.js"
import type { Code } from "./codes.js"
import type { Found } from "./finding.js"
import type { Installed } from "./look.js"
import { grantsDue } from "./privileges.js"
import { actingAs, type Check, isStrict, lending, type Subject, transaction } from "./subject.js"

type Routine = Installed["routines"][number]

const label = ({ arguments: types, name }: { readonly name: string; readonly arguments: string }): string =>
  `${name}(${types})`

const searchPath = "search_path="

const isPath = (setting: string): boolean => setting.startsWith(searchPath)

const none = (settings: ReadonlyArray<string>): string => (settings.length === 0 ? "none" : settings.join("; "))

/** Created again by its owner; what was there before, with its privileges, goes first where it cannot be replaced. */
const createdAgain = (subject: Subject, expected: ExpectedRoutine, drop: ReadonlyArray<string>): string =>
  transaction(
    ...drop,
    ...lending(
      subject,
      subject.installed.routinesOwner,
      ...actingAs(
        subject.installed.routinesOwner,
        expected.sql.replace(/;$/, ""),
        ...grantsDue(subject, label(expected))
      )
    )
  )

const shortHash = (hash: string): string => `sha256 ${hash.slice(0, 16)}`

/** What a replacement mends: each difference under its own code. */
const differences = (found: Routine, expected: ExpectedRoutine): ReadonlyArray<readonly [Code, string, string]> => {
  const attributes = (volatility: string, strict: boolean, leakproof: boolean, parallel: string, kind: string) =>
    [
      volatility,
      strict && "strict",
      leakproof && "leakproof",
      parallel !== "u" && `parallel ${parallel}`,
      kind !== "f" && `kind ${kind}`
    ]
      .filter((part) => part !== false)
      .join(", ")
  const security = (definer: boolean) => (definer ? "security definer" : "security invoker")
  const compared: ReadonlyArray<readonly [Code, string, string]> = [
    ["routine-security", security(found.definer), security(expected.definer)],
    ["routine-language", found.language, expected.language],
    ["routine-search-path", none(found.settings.filter(isPath)), none(expected.settings.filter(isPath))],
    [
      "routine-settings",
      none(found.settings.filter((setting) => !isPath(setting))),
      none(expected.settings.filter((setting) => !isPath(setting)))
    ],
    [
      "routine-attributes",
      attributes(found.volatility, found.strict, found.leakproof, found.parallel, found.kind),
      attributes(expected.volatility, false, false, "u", "f")
    ],
    ["routine-body", shortHash(found.bodyHash), shortHash(expected.bodyHash)]
  ]
  return compared.filter(([, is, should]) => is !== should)
}

const isSameSignature = (found: Routine, expected: ExpectedRoutine): boolean =>
  found.arguments === expected.arguments &&
  found.defaults === expected.defaults &&
  (expected.result === undefined || found.result === null || sameResult(found.result) === expected.result)

const checkOne = (subject: Subject, expected: ExpectedRoutine, named: ReadonlyArray<Routine>): ReadonlyArray<Found> => {
  const { routinesOwner } = subject.installed
  const object = label(expected)
  const ours =
    named.find((routine) => routine.arguments === expected.arguments) ?? (named.length === 1 ? named[0] : undefined)
  const overloads = named.filter((routine) => routine !== ours)
  const more = overloads.map((overload): Found => ({
    code: "routine-overload",
    object: label(overload),
    found: `${overload.object} beside ${object}`,
    expected: "one routine of this name",
    sql: transaction(`drop ${overload.object}`)
  }))
  if (ours === undefined) {
    return [
      ...more,
      {
        code: "routine-missing",
        object,
        found: "no such routine",
        expected: "a routine of the manifest",
        sql: createdAgain(subject, expected, [])
      }
    ]
  }
  if (!isSameSignature(ours, expected)) {
    const said = (types: string, result: string | undefined | null, defaults: number) =>
      `${expected.name}(${types})${result === undefined || result === null ? "" : ` returns ${sameResult(result)}`}, ${defaults} defaults`
    return [
      ...more,
      {
        code: "routine-signature",
        object,
        found: said(ours.arguments, ours.result, ours.defaults),
        expected: said(expected.arguments, expected.result, expected.defaults),
        sql: createdAgain(subject, expected, [`drop ${ours.object}`])
      }
    ]
  }
  return [
    ...more,
    ...(ours.owner === routinesOwner
      ? []
      : [
          {
            code: "routine-owner",
            object,
            found: `owner ${ours.owner}`,
            expected: `owner ${routinesOwner}${isStrict(subject) ? ", who owns the other routines" : ""}`,
            sql: transaction(
              ...lending(subject, routinesOwner, `alter ${ours.object} owner to ${quoteIdentifier(routinesOwner)}`)
            )
          } as const
        ]),
    ...differences(ours, expected).map(([code, found, should]): Found => ({
      code,
      object,
      found,
      expected: should,
      sql: createdAgain(subject, expected, [])
    }))
  ]
}

/**
 * Signature, owner, security mode, language, settings and body of every routine, as this library would install it (C-53).
 *
 * @internal
 */
export const checkRoutines: Check = (subject) => {
  const { installed, schema } = subject
  const expected = expectedRoutines({ schema, ring: installed.ring })
  const byName = new Map<string, Array<Routine>>()
  for (const routine of installed.routines) byName.set(routine.name, [...(byName.get(routine.name) ?? []), routine])
  const known = new Set(expected.map(({ name }) => name))
  return [
    ...expected.flatMap((routine) => checkOne(subject, routine, byName.get(routine.name) ?? [])),
    ...installed.routines
      .filter(({ name }) => !known.has(name))
      .map((routine): Found => ({
        code: "routine-unexpected",
        object: label(routine),
        found: routine.object,
        expected: "no such routine",
        sql: transaction(`drop ${routine.object}`)
      }))
  ]
}
