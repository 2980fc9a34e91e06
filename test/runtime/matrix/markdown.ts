import { evidenceNames, type EvidenceColumn, evidences, exitNames, type ExitRow, exits } from "./table.js"

const row = (cells: ReadonlyArray<string>): string => `| ${cells.join(" | ")} |`

const table = (head: ReadonlyArray<string>, rows: ReadonlyArray<ReadonlyArray<string>>): string =>
  [row(head), row(head.map(() => "---")), ...rows.map(row)].join("\n")

const code = (text: string | undefined): string => (text === undefined ? "" : `\`${text}\``)

const endings = {
  completed: "`accepted`",
  open: "`closed` as the exit selects",
  otherwise: "`stale`",
  parked: "`parked`"
}

const finds = ({ later }: EvidenceColumn): string => {
  switch (later) {
    case undefined:
      return ""
    case "rescue-won":
      return "`rescue-won`, when rescue has ended it"
    case "watch-expired":
      return "`watch-expired`, after its life"
    case "accepted-later":
      return "`accepted-later`, or the exit's event"
    default:
      return code(later)
  }
}

const ofEvidence = (name: (typeof evidenceNames)[number]): ReadonlyArray<string> => {
  const column: EvidenceColumn = evidences[name]
  return [
    column.says,
    column.meanwhile ?? "",
    column.later === undefined ? endings[column.end] : "`unresolved`, and nothing else is done",
    finds(column)
  ]
}

const ofExit = (name: (typeof exitNames)[number]): ReadonlyArray<string> => {
  const { class: exit, open, says, whenCompleted, whenOpen, whenOtherwise }: ExitRow = exits[name]
  return [says, exit, code(open), code(whenOpen), code(whenCompleted), code(whenOtherwise)]
}

/** The table as schema/README.md shows it. */
export const markdown = [
  table(
    ["the evidence", "until it is known", "the permit is released as", "the watcher tells"],
    evidenceNames.map(ofEvidence)
  ),
  "",
  table(
    [
      "the handler's exit",
      "`exit`",
      "an open attempt ends as",
      "event then",
      "event when it is completed",
      "event when another outcome won"
    ],
    exitNames.map(ofExit)
  )
].join("\n")
