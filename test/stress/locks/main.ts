/** `npm run locks`: see rounds.ts. On the server of AWA_TEST_DATABASE_URL, or one of its own. */
import { make } from "effect-awa/layers/EmbeddedPostgres"
import { Effect, Redacted } from "effect"
import { parseArgs } from "node:util"
import { edit } from "./sabotage.js"
import { locks } from "./rounds.js"

const { values } = parseArgs({
  options: { rounds: { type: "string", default: "10000" }, seed: { type: "string" }, pair: { type: "string" } }
})
const seed = Number(values.seed ?? process.env["AWA_STRESS_SEED"] ?? Math.floor(Math.random() * 2 ** 31))
const given = process.env["AWA_TEST_DATABASE_URL"]

const pairOf = (text: string | undefined): ReadonlyArray<readonly [string, string]> | undefined => {
  const [a, b] = text?.split(",") ?? []
  return a === undefined || b === undefined ? undefined : [[a, b]]
}

const server =
  given !== undefined && given !== ""
    ? Effect.succeed(given)
    : Effect.map(make({ settings: { fsync: "off", full_page_writes: "off" } }), (own) =>
        Redacted.value(own.url("postgres"))
      )

const program = Effect.gen(function* () {
  console.log(`seed ${seed}`)
  const startedAt = performance.now()
  const rounds = Number(values.rounds)
  const report = yield* locks({
    server: yield* server,
    seed,
    rounds,
    pairs: pairOf(values.pair),
    edit,
    progress: (round) => {
      if (round % 500 === 499)
        console.log(`${round + 1} rounds, ${Math.round((performance.now() - startedAt) / 1000)} s`)
    }
  })
  console.log(JSON.stringify(report, null, 2))
  return report.deadlocks === 0 && report.faults.length === 0
})

process.exitCode = (await Effect.runPromise(Effect.scoped(program))) ? 0 : 1
