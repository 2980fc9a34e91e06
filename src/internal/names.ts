// eslint-disable-next-line no-control-regex -- the rule is about control characters
const control = /[\u0000-\u001f\u007f]/

/** Whether PostgreSQL can store the text: it has no NUL and no lone surrogate. */
export const isStorable = (text: string): boolean => text.isWellFormed() && !text.includes("\u0000")

/**
 * The rule that a name of a queue or a kind breaks, in the words that `name_fault` uses in SQL.
 *
 * @internal
 */
export const nameFault = (name: string): string | undefined => {
  if (name === "") return "expected a non-empty text"
  if (!name.isWellFormed()) return "no lone surrogates"
  if (Buffer.byteLength(name, "utf8") > 255) return "at most 255 bytes"
  if (control.test(name)) return "no control characters"
  return undefined
}

/**
 * The rule that the name of a schema breaks: a longer one would be cut off by the server, and then be another's.
 *
 * @internal
 */
export const schemaFault = (name: string): string | undefined => {
  if (name === "") return "expected a non-empty name"
  if (!isStorable(name)) return "no NUL and no lone surrogates"
  if (Buffer.byteLength(name, "utf8") > 63) return "at most 63 bytes of UTF-8"
  if (name.startsWith("pg_")) return "PostgreSQL reserves names that begin with pg_"
  return undefined
}
