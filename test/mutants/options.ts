import type { Mutant } from "../mutants.js"

const suite = "test/runtime/Options.test.ts"
const unchecked = "test/serviceOptions.test.ts"
const refused = "are refused by name and rule when the layer is built"
const ofJobs = "are the defaults of its jobs too, which are told as an enqueue is"
const ofPools = "of its pools are refused by the names that the layer gives them, before anything is opened"

/** The sabotages of what a worker refuses to start with. */
export const optionMutants: ReadonlyArray<Mutant> = [
  {
    name: "start with whatever the services are told",
    file: "layers/Worker.ts",
    from: "workerFault(handlers, options) ?? servicesFault(options)",
    to: "workerFault(handlers, options)",
    suite,
    test: refused
  },
  {
    name: "look at a worker's options when its pools are open",
    file: "layers/Worker.ts",
    from: "const fault = workerFault(handlers, options) ?? servicesFault(options)",
    to: "const fault = servicesFault(options)",
    suite,
    test: refused
  },
  {
    name: "start with a name that the database cannot store",
    file: "src/internal/workerOptions.ts",
    from: "    name: textFault(options.name),\n",
    to: "",
    suite,
    test: refused
  },
  {
    name: "take what is no duration for one",
    file: "src/internal/optionRules.ts",
    from: "  Option.exists(durationOf(input), (duration) => {",
    to: "  Option.isNone(durationOf(input)) ||\n  Option.exists(durationOf(input), (duration) => {",
    suite,
    test: refused
  },
  {
    name: "sweep what has ended at once",
    file: "src/internal/serviceOptions.ts",
    from: "  least: 1_000,\n",
    to: "  least: 0,\n",
    suite,
    test: refused
  },
  {
    name: "serve a job whose definition breaks a rule",
    file: "src/internal/workerOptions.ts",
    from: "if (fault !== undefined) return { option: `${listed}: ${fault.option}`, rule: fault.rule }",
    to: "void fault",
    suite,
    test: ofJobs
  },
  {
    name: "enqueue whatever a definition says",
    file: "src/internal/enqueueCall.ts",
    from: "if (fault !== undefined) return new PayloadRejected({ path: fault.option, rule: fault.rule })",
    to: "void fault",
    suite,
    test: ofJobs
  },
  {
    name: "fail with the pools' own names",
    file: "layers/internal/writtenOptions.ts",
    from: "option: written[option] ?? option",
    to: "option",
    suite,
    test: ofPools
  },
  {
    name: "open the runtime's pool before the application's options are right",
    file: "layers/Worker.ts",
    from: "runtimeRefusal(runtime) ?? applicationRefusal(application)",
    to: "runtimeRefusal(runtime)",
    suite,
    test: ofPools
  },
  {
    name: "open a bound of connections on a url that is none",
    file: "src/SharedPool.ts",
    from: "return runtimePoolFault({ url, listenUrl, schema })",
    to: "return undefined",
    suite,
    test: "of pools that are shared are refused by the names that were written there"
  },
  {
    name: "flush nothing, for ever",
    file: "src/internal/optionRules.ts",
    from: "Math.min(most, Math.max(least, Math.trunc(value)))",
    to: "Math.min(most, Math.trunc(value))",
    suite: unchecked,
    test: "never make a flush of nothing, nor one that waits for ever"
  },
  {
    name: "poll without a pause",
    file: "src/internal/optionRules.ts",
    from: "{ minimum: least, maximum: most }",
    to: "{ minimum: 0, maximum: most }",
    suite: unchecked,
    test: "never make a pause of none, nor one without an end"
  },
  {
    name: "take NaN for no time",
    file: "src/internal/optionRules.ts",
    from: "return !(input >= 0)",
    to: "return input < 0",
    suite: unchecked,
    test: "is what can be read, and neither negative nor NaN"
  },
  {
    name: "wait for ever between two attempts",
    file: "src/RetryPolicy.ts",
    from: "Math.min(Duration.toMillis(policy.maximum), longestMillis)",
    to: "Duration.toMillis(policy.maximum)",
    suite: "test/RetryPolicy.test.ts",
    test: "waits a hundred years at most, in whole milliseconds, where nothing else bounds it"
  }
]
