/** Checks configurations and prints one line for each. */
import type { Configuration } from "./configuration.js"
import { check, type Finding } from "./tlc.js"

/** What is wrong with a finding; undefined when it is what the configuration expects. */
export const faultOf = (configuration: Configuration, finding: Finding): string | undefined => {
  const { states, violates } = configuration
  const { distinct, violated } = finding
  if (violates !== violated) {
    const expected = violates === undefined ? "to hold" : `${violates} to be violated`
    return `expected ${expected}, but ${violated === undefined ? "it holds" : `${violated} is violated`}`
  }
  if (states !== undefined && states !== distinct) return `expected ${states} distinct states: the model has changed`
  return undefined
}

const grouped = (n: number): string => n.toLocaleString("en").padStart(9)

const line = (configuration: Configuration, finding: Finding, fault: string | undefined): string => {
  const result = finding.violated === undefined ? "holds" : `counterexample: ${finding.violated}`
  const depth = finding.depth === 0 ? "  -" : String(finding.depth).padStart(3)
  return (
    `${fault === undefined ? "ok    " : "FAILED"} ${grouped(finding.distinct)} states  depth ${depth}  ` +
    `${finding.seconds.toFixed(0).padStart(3)} s  ${configuration.name} · ${fault ?? result}`
  )
}

/** The states of a counterexample, as TLC writes them. */
const counterexampleOf = (output: string): string => {
  const from = output.indexOf("Error:")
  return from < 0 ? output : output.slice(from)
}

/** Checks all of them, so many at once. Answers whether each found what it expects. */
export const checkAll = async (
  configurations: ReadonlyArray<Configuration>,
  options: { readonly parallel: number; readonly counterexamples: boolean }
): Promise<boolean> => {
  if (configurations.length === 0) throw new Error("no configuration has such a name")
  const waiting = [...configurations]
  let failed = 0
  const worker = async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const finding = await check(next).catch((error: unknown) =>
        error instanceof Error ? error.message : String(error)
      )
      if (typeof finding === "string") {
        failed++
        console.log(`FAILED ${next.name} · ${finding}`)
        continue
      }
      const fault = faultOf(next, finding)
      if (fault !== undefined) failed++
      console.log(line(next, finding, fault))
      const unexpected = fault !== undefined && finding.violated !== undefined
      if (unexpected || (options.counterexamples && finding.violated !== undefined)) {
        console.log(counterexampleOf(finding.output))
      }
    }
  }
  await Promise.all(Array.from({ length: options.parallel }, worker))
  console.log(`${configurations.length - failed} of ${configurations.length} configurations found what they expect`)
  return failed === 0
}
