/** What a benchmark answers, and how it is written: JSON, Markdown, and a picture per chart. */
import { mkdir, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { type Chart, png, svg } from "./plot.js"

export interface Check {
  readonly what: string
  readonly value: number
  /** As it is to be read: "≥ 0.95". */
  readonly target: string
  readonly met: boolean
}

export interface Table {
  readonly title: string
  readonly columns: ReadonlyArray<string>
  readonly rows: ReadonlyArray<ReadonlyArray<string | number>>
}

export interface Result {
  readonly name: string
  readonly checks: ReadonlyArray<Check>
  readonly tables: ReadonlyArray<Table>
  readonly charts: ReadonlyArray<Chart>
  readonly notes: ReadonlyArray<string>
}

export const atLeast = (what: string, value: number, bound: number): Check => ({
  what,
  value,
  target: `≥ ${bound}`,
  met: value >= bound
})

export const atMost = (what: string, value: number, bound: number): Check => ({
  what,
  value,
  target: `≤ ${bound}`,
  met: value <= bound
})

export const shown = (value: number | string): string => {
  if (typeof value === "string") return value
  if (!Number.isFinite(value)) return String(value)
  if (Number.isInteger(value) || Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en")
  return String(Number(value.toPrecision(3)))
}

const cell = (value: string | number): string => shown(value).replaceAll("|", "\\|")

const tableText = ({ columns, rows, title }: Table): string =>
  [
    `**${title}**`,
    "",
    `| ${columns.join(" | ")} |`,
    `| ${columns.map((_, i) => (i === 0 ? "---" : "---:")).join(" | ")} |`,
    ...rows.map((row) => `| ${row.map(cell).join(" | ")} |`)
  ].join("\n")

export const resultText = (result: Result): string =>
  [
    `## ${result.name}`,
    ...(result.checks.length === 0
      ? []
      : [
          tableText({
            title: "Checks",
            columns: ["what", "measured", "target", "met"],
            rows: result.checks.map((check) => [check.what, check.value, check.target, check.met ? "yes" : "NO"])
          })
        ]),
    ...result.tables.map(tableText),
    ...result.notes.map((note) => `- ${note}`),
    ...result.charts.map((chart) => `![${chart.title}](./${chart.name}.svg)`)
  ].join("\n\n")

/** The Markdown of all results; a benchmark's files are written when it ends, so that a later failure loses none. */
export const write = async (
  directory: string,
  heading: string,
  environment: Table,
  results: ReadonlyArray<Result>
): Promise<void> => {
  await mkdir(directory, { recursive: true })
  const markdown = [`# ${heading}`, tableText(environment), ...results.map(resultText)].join("\n\n")
  await writeFile(join(directory, "results.md"), `${markdown}\n`)
  await writeFile(join(directory, "results.json"), `${JSON.stringify({ environment, results }, undefined, 2)}\n`)
  for (const chart of results.flatMap((result) => result.charts)) {
    const drawing = svg(chart)
    await writeFile(join(directory, `${chart.name}.svg`), drawing)
    await writeFile(join(directory, `${chart.name}.png`), png(drawing))
  }
}
