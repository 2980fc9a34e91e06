/** What is seen on the terminal. */
const startedAt = performance.now()

/** A line with the time since the start. */
export const say = (text: string): void => {
  const seconds = Math.floor((performance.now() - startedAt) / 1000)
  const clock = `${String(Math.floor(seconds / 60)).padStart(2, "0")}:${String(seconds % 60).padStart(2, "0")}`
  console.log(`  ${clock}  ${text}`)
}

export const number = (value: number): string => value.toLocaleString("en-US")

export const counts = (parts: Readonly<Record<string, number>>): string =>
  Object.entries(parts)
    .map(([name, value]) => `${name} ${number(value)}`)
    .join(", ")

/** Rows of text columns, each as wide as its widest. */
export const table = (rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  return rows
    .map((row) => `  ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ")}`.trimEnd())
    .join("\n")
}
