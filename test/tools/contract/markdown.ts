import type { Contract, PublicFunction } from "./data.js"

const table = (head: ReadonlyArray<string>, rows: ReadonlyArray<ReadonlyArray<string>>): string =>
  [head, head.map(() => "---"), ...rows].map((row) => `| ${row.join(" | ")} |`).join("\n")

const code = (text: string): string => `\`${text}\``

const signature = ({ arguments: args, name }: PublicFunction): string =>
  `${name}(${args.map((arg) => `${arg.name} ${arg.type}${arg.default === undefined ? "" : ` default ${arg.default}`}`).join(", ")})`

const answers: Readonly<Record<PublicFunction["returns"], string>> = {
  nothing: "Answers nothing.",
  value: "Answers one value:",
  row: "Answers exactly one row:",
  rows: "Answers rows:"
}

const describe = (fn: PublicFunction): string =>
  [
    `### ${fn.name}`,
    code(signature(fn)),
    `${fn.say} ${answers[fn.returns]}`,
    ...(fn.columns.length === 0
      ? []
      : [
          table(
            ["column", "type", "null"],
            fn.columns.map((column) => [code(column.name), column.type, column.null])
          )
        ]),
    `Class ${code(fn.class)}. Isolation: ${fn.isolation}. Waits: ${fn.waits}. ` +
      (fn.states.length === 0 ? "No SQLSTATE of its own." : `SQLSTATEs: ${fn.states.map(code).join(", ")}.`)
  ].join("\n\n")

/** The generated parts of schema/CONTRACT.md, by the names of their marks. */
export const blocks = ({ functions, lists, outcomes, states }: Contract): Readonly<Record<string, string>> => ({
  functions: functions.map(describe).join("\n\n"),
  keys: lists
    .map(
      (list) =>
        `### ${list.title}\n\nA key that is not listed is \`${list.unknownKey}\`.\n\n` +
        table(
          ["key", "JSON type", "rule", "null or missing"],
          list.keys.map(({ default: otherwise, key, rule, type }) => [code(key), type, rule, otherwise])
        )
    )
    .join("\n\n"),
  outcomes: table(
    ["outcome", "the job"],
    outcomes.map(({ outcome, say }) => [code(outcome), say])
  ),
  states: table(
    ["state", "meaning"],
    states.map(({ say, state }) => [code(state), say])
  )
})
