import { type Code, type CodeEntry, codes } from "./codes.js"

/** One thing that is not as it should be (contract C-53). */
export interface Finding {
  /** Stable: once released it keeps its name and its meaning. `schema/README.md` lists all of them. */
  readonly code: Code
  /** An `error` breaks what the contract says, a `warning` may bite, a `note` is to be known. */
  readonly severity: "error" | "warning" | "note"
  /** What it is about: a routine, a role, a setting. */
  readonly object: string
  readonly found: string
  readonly expected: string
  /** What mends it, to be reviewed and then run as it is; null where no SQL can. Nothing is run by doctor. */
  readonly sql: string | null
  /** What to do instead of, or before, running the SQL. */
  readonly advice: string | null
}

/** @internal */
export interface Found {
  readonly code: Code
  readonly object: string
  readonly found: string
  readonly expected: string
  readonly sql?: string | undefined
  readonly advice?: string | undefined
}

/** @internal The severity is the code's, and under `strict` perhaps more. */
export const finding = ({ advice, code, expected, found, object, sql }: Found, strict: boolean): Finding => {
  const entry: CodeEntry = codes[code]
  return {
    code,
    severity: (strict ? entry.strict : undefined) ?? entry.severity,
    object,
    found,
    expected,
    sql: sql ?? null,
    advice: advice ?? null
  }
}
