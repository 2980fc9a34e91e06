/** A process that says what it is told to, and ends as it is told to. Plain JavaScript: it starts at once. */
import process from "node:process"
import { performance } from "node:perf_hooks"

const [how = "wait"] = process.argv.slice(2)
const say = (line) => process.stdout.write(`${line}\n`)

say(JSON.stringify({ now: Date.now(), text: new Date().toISOString(), origin: performance.timeOrigin }))
process.stderr.write("a word aside\n")
if (how === "fail") process.exit(7)
say("ready")
process.stdin.resume().once("end", () => {
  say(`stopped ${process.env.FAULTS_WORD ?? ""}`)
  process.exit(0)
})
