import type { Mutant } from "../mutants.js"

const suite = "test/workers/Worker.workers.ts"
const config = "vitest.workers.config.ts"

const python = { file: "examples/workers/python/worker.py", suite, config }
const go = { file: "examples/workers/go/main.go", suite, config }

/** The sabotages of the workers in other languages, and of the kinds that they share. */
export const contractMutants: ReadonlyArray<Mutant> = [
  {
    ...python,
    name: "complete outside the handler's transaction in Python",
    from: 'tx.execute(f"select awa.complete_job({completion})", job)',
    to: 'ask(f"select awa.complete_job({completion})", job)',
    test: "a worker in Python has neither rows nor a completion when COMMIT never arrived, and retries"
  },
  {
    ...python,
    name: "take any end for a completion in Python",
    from: 'return "accepted" if seen["outcome"] == "completed" else "stale"',
    to: 'return "accepted"',
    test: "a worker in Python commits nothing of an attempt that went stale while its handler was at work"
  },
  {
    ...python,
    name: "guess where there is no evidence in Python",
    from: "            pass  # no answer",
    to: "            return outcome  # no answer",
    test: "a worker in Python asks again for evidence that does not come, before it takes another job"
  },
  {
    ...python,
    name: "beat for nothing in Python",
    from: "tokens(list(running.values()))",
    to: "tokens([])",
    test: "a worker in Python beats for what it runs, and hears that it has lost it"
  },
  {
    ...go,
    name: "guess where there is no evidence in Go",
    from: 'case err != nil || status == "unknown"',
    to: 'case err != nil:\n\t\t\treturn outcome\n\t\tcase status == "unknown"',
    test: "a worker in Go asks again for evidence that does not come, before it takes another job"
  },
  {
    name: "export a payload as the program sees it",
    file: "src/Kinds.ts",
    from: "Effect.orElse(attempt(Schema.encodedBoundSchema(schema)), () => attempt(schema))",
    to: "attempt(Schema.typeSchema(schema))",
    suite: "test/cli/kinds.test.ts",
    test: "awa kinds export writes the schema of what is stored for every job of a module, and an index"
  },
  {
    name: "say nothing of what the database does not check",
    file: "src/cli/kinds.ts",
    from: "for (const place of unchecked)",
    to: "for (const place of unchecked.slice(unchecked.length))",
    suite: "test/cli/kinds.test.ts",
    test: "awa kinds register stores them, says what the database does not check, and changes nothing the second time"
  },
  {
    name: "write over handlers that were filled in",
    file: "src/cli/kinds.ts",
    from: 'const keep = mode === "written once" && ',
    to: 'const keep = mode === "written once" && false && ',
    suite: "test/cli/kinds.test.ts",
    test: "awa kinds stubs writes a producer each time, and handlers once"
  },
  {
    name: "export a kind twice",
    file: "src/Kinds.ts",
    from: "if (kinds.at(-1)?.kind === kind)",
    to: "if (kinds.length < 0)",
    suite: "test/cli/kinds.test.ts",
    test: "awa kinds describe names a kind that is defined twice, or has no JSON Schema"
  },
  {
    name: "send null for what is left out in Python",
    file: "src/internal/kindStubsPython.ts",
    from: "`        if self.${name} is not None:\\n",
    to: "`        if True:\\n",
    suite: "test/workers/Stubs.workers.ts",
    config,
    test: "stubs in Python enqueue in the caller's transaction, and complete what they claim"
  },
  {
    name: "forget the options of the definition in Go",
    file: "src/internal/kindStubsGo.ts",
    from: "`Opts{${Object.entries(defaultsOf(definition))",
    to: "`Opts{${Object.entries(defaultsOf({ ...definition, maxAttempts: undefined }))",
    suite: "test/workers/Stubs.workers.ts",
    config,
    test: "stubs in Go compile, enqueue in the caller's transaction, and complete what they claim"
  },
  {
    ...go,
    name: "take any end for a completion in Go",
    from: 'case ended == "completed":',
    to: 'case ended != "":',
    test: "a worker in Go commits nothing of an attempt that went stale while its handler was at work"
  }
]
