/**
 * Who may import whom. Folders first, then the promises single modules make.
 */

/** The modules that live the life of a job; a program that only enqueues carries none of them. */
const workerModules = "^src/(Worker|Claim|Completion|Reconciliation|Maintenance)\\.ts$"

/** What every other module is written in terms of: ids, proofs, errors, outcomes and pure policy. */
const vocabulary =
  "^src/(JobId|QueueName|RunLease|FinalizationToken|FinalizationReceipt|Settled|JobOutcome|RetryPolicy|InstalledSchema|[A-Za-z]*Error)\\.ts$"

const ours = "^(src|schema|layers|test|examples)/"

/** @type {import("dependency-cruiser").IConfiguration} */
export default {
  forbidden: [
    {
      name: "no-cycles",
      comment: "Modules that need each other to be loaded are one module.",
      severity: "error",
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ["type-only"] } }
    },
    {
      name: "no-missing",
      comment: "Every import resolves to a file or to a package.json dependency.",
      severity: "error",
      from: {},
      to: { couldNotResolve: true }
    },
    {
      name: "no-undeclared-packages",
      comment: "What is published imports only what its package.json asks for.",
      severity: "error",
      from: { path: "^(src|layers)/" },
      to: {
        dependencyTypes: ["npm-dev", "npm-no-pkg", "npm-unknown"],
        dependencyTypesNot: ["npm", "npm-peer", "type-only"]
      }
    },
    {
      name: "schema-stands-alone",
      severity: "error",
      from: { path: "^schema/" },
      to: { path: ours, pathNot: "^schema/" }
    },
    {
      name: "src-knows-no-wiring",
      comment: "src says what the words mean; only layers compose, read the environment and build processes.",
      severity: "error",
      from: { path: "^src/" },
      to: { path: ours, pathNot: "^src/" }
    },
    {
      name: "internal-uses-vocabulary-only",
      comment:
        "Internal modules are below the services; of what is public they load only what they are written in terms of.",
      severity: "error",
      from: { path: "^src/internal/" },
      to: { path: "^src/", pathNot: ["^src/internal/", vocabulary], dependencyTypesNot: ["type-only"] }
    },
    {
      name: "faces-use-services-only",
      comment: "The command line and the console are two faces of the same public services.",
      severity: "error",
      from: { path: "^src/(cli|console)/" },
      to: { path: "^src/", pathNot: ["^src/[A-Za-z]+\\.ts$", "^src/(cli|console)/"] }
    },
    {
      name: "services-know-no-face",
      severity: "error",
      from: { path: "^src/(?!cli/|console/)" },
      to: { path: "^src/(cli|console)/" }
    },
    {
      name: "layers-use-src-and-schema",
      severity: "error",
      from: { path: "^layers/" },
      to: { path: ours, pathNot: "^(layers|src|schema)/" }
    },
    {
      name: "examples-stand-alone",
      comment: "An example uses what a user can install.",
      severity: "error",
      from: { path: "^examples/" },
      to: { path: "^(test/|schema/|(src|layers/|layers/testing)/internal/)" }
    },
    {
      name: "barrel-is-for-users",
      comment: "Inside the package a module names what it needs.",
      severity: "error",
      from: { path: "^(src|layers)/" },
      to: { path: "^src/index\\.ts$" }
    },
    {
      name: "worker-sees-no-sql",
      comment: "Worker.ts reads as the life of a job: services, never statements.",
      severity: "error",
      from: { path: "^src/Worker\\.ts$" },
      to: {
        path: "(^src/internal/(sql|runtimeCall|applicationConnection|listener|renderSql|column))|node_modules/(@effect/sql|pg/)"
      }
    },
    {
      name: "producers-stay-small",
      comment: "Declaring and enqueuing a job must not load what runs it.",
      severity: "error",
      from: { path: "^src/(Job|Enqueue)\\.ts$" },
      to: { path: workerModules, reachable: true }
    }
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    exclude: { path: "^(dist|\\.tmp|test/bench/peers/npm)/" },
    tsConfig: { fileName: "tsconfig.json" },
    tsPreCompilationDeps: true,
    enhancedResolveOptions: {
      conditionNames: ["@effect-awa/source", "types", "node", "import", "default"],
      exportsFields: ["exports"],
      extensions: [".ts", ".js", ".mjs", ".json"]
    }
  }
}
