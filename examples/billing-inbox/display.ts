/**
 * What is seen on the terminal.
 */
import { Effect, Schedule } from "effect"
import { invoiceCount } from "./inbox.js"
import type { Storm } from "./storm.js"
import { type Line, number } from "./verdict.js"
import type { Watch } from "./watch.js"

const write = (text: string) => Effect.sync(() => void process.stdout.write(text))

export const print = (...rows: ReadonlyArray<string>) => write(rows.map((row) => `${row}\n`).join(""))

const width = 20

export const heading = (title: string, facts: Readonly<Record<string, string>>) =>
  print(title, ...Object.entries(facts).map(([name, value]) => `  ${name.padEnd(10)}${value}`), "")

/** One line that is written over and over on a terminal, and a few lines of text elsewhere. */
export const showProgress = (watch: Watch, storm: Storm) => {
  const overwrites = process.stdout.isTTY
  const startedAt = performance.now()
  let shown = -1
  const show = Effect.gen(function* () {
    const { paid } = yield* watch.latest
    const { held, kills, lostAnswers } = yield* storm.damage
    const tenth = Math.floor((paid * 10) / invoiceCount)
    if (!overwrites && tenth === shown) return
    shown = tenth
    const full = Math.round((paid * width) / invoiceCount)
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(0)
    const text =
      `  ${"█".repeat(full)}${"░".repeat(width - full)} ${number(paid)} of ${number(invoiceCount)} paid` +
      ` · ${seconds} s · killed ${number(kills.length)} · lost ${number(lostAnswers)} · held ${number(held)}`
    yield* write(overwrites ? `\r${text}\u001b[K` : `${text}\n`)
  })
  return show.pipe(
    Effect.repeat(Schedule.spaced("200 millis")),
    Effect.onExit(() => Effect.zipRight(show, write(overwrites ? "\n" : "")))
  )
}

export const table = (lines: ReadonlyArray<Line>) => {
  const labels = Math.max(...lines.map(({ label }) => label.length))
  return print(
    ...lines.map(({ label, note, value }) => `  ${label.padEnd(labels)}  ${number(value).padStart(6)}   ${note}`),
    ""
  )
}
