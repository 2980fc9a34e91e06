/** A word as a POSIX shell reads it: a schema may have any name. */
const shellWord = (text: string): string =>
  /^[A-Za-z0-9_.-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`

/**
 * A command that mends something, as an advice shows it. Without the schema it would be done to `awa`: `awa migrate` would
 * install a second time, beside what was looked for.
 *
 * @internal
 */
export const awaCommand = (command: string, schema: string): string =>
  `\`awa ${command}${schema === "awa" ? "" : ` --schema ${shellWord(schema)}`}\``
