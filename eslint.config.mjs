/**
 * The rules of the code. Who may import whom is checked by dependency-cruiser (.dependency-cruiser.mjs), except what
 * depends on how an import is written or on a single name: that is here.
 */
import comments from "@eslint-community/eslint-plugin-eslint-comments/configs"
import js from "@eslint/js"
import { defineConfig } from "eslint/config"
import tseslint from "typescript-eslint"

/** What makes the three proofs, and the only modules that may use it. */
const makers = [
  { name: "makeToken", users: ["src/Claim.ts"] },
  { name: "makeReceipt", users: ["src/internal/completionCall.ts"] },
  { name: "readReceipt", users: ["src/CompleteInTx.ts", "src/Driver.ts", "src/internal/pgCompletion.ts"] },
  { name: "makeSettled", users: ["src/Completion.ts", "src/internal/closeCall.ts", "src/Reconciliation.ts"] }
]

const makerOutside = ({ name, users }) => ({
  selector:
    `:matches(ImportSpecifier[imported.name='${name}'], ExportSpecifier[local.name='${name}'], ` +
    `MemberExpression[property.name='${name}'])`,
  message: `Only ${users.join(" and ")} may use ${name}: that is what makes the value a proof.`
})

const orDie = {
  selector: "MemberExpression[object.name='Effect'][property.name=/^orDie(With)?$/]",
  message: "A defect hides the error from its caller. Where it truly cannot happen, disable this rule and say why."
}

const relativeInto = (folders, message) => ["error", { patterns: [{ regex: `^\\.\\.?/(.*/)?(${folders})`, message }] }]

export default defineConfig(
  { ignores: ["dist/", ".tmp/", "coverage/", "**/*.generated.ts", "test/bench/peers/dist/", "test/bench/peers/npm/"] },
  { linterOptions: { reportUnusedDisableDirectives: "error" } },
  js.configs.recommended,
  tseslint.configs.strictTypeChecked,
  comments.recommended,
  {
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      "@eslint-community/eslint-comments/require-description": ["error", { ignore: ["eslint-enable"] }],
      "@typescript-eslint/consistent-type-assertions": ["error", { assertionStyle: "never" }],
      "@typescript-eslint/consistent-type-exports": "error",
      "@typescript-eslint/consistent-type-imports": "error",
      // Effects of nothing are values here: `Effect.async<void>(…)`, `() => void something()`.
      "@typescript-eslint/no-confusing-void-expression": "off",
      "@typescript-eslint/no-invalid-void-type": "off",
      // `interface Opaque extends internal.Opaque {}` and classes made by a schema's constructor.
      "@typescript-eslint/no-empty-object-type": ["error", { allowInterfaces: "with-single-extends" }],
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "no-console": "error",
      eqeqeq: "error"
    }
  },
  {
    files: ["src/**"],
    rules: {
      "no-restricted-globals": [
        "error",
        { name: "process", message: "Only layers/ know the environment and the process." }
      ],
      "no-restricted-imports": ["error", { paths: ["process", "node:process"] }],
      "no-restricted-syntax": ["error", orDie, ...makers.map(makerOutside)]
    }
  },
  ...makers.flatMap(({ users }, own) => ({
    files: [...users],
    rules: {
      "no-restricted-syntax": ["error", orDie, ...makers.filter((_, index) => index !== own).map(makerOutside)]
    }
  })),
  {
    // Every module of the barrel is exported alike, also one that has only types.
    files: ["src/index.ts"],
    rules: { "@typescript-eslint/consistent-type-exports": "off" }
  },
  {
    files: ["test/**"],
    rules: {
      "no-restricted-imports": relativeInto(
        "src/(?!internal/)|layers/(?!testing/|internal/)",
        "Import `effect-awa` by its public name."
      )
    }
  },
  {
    files: ["examples/**"],
    rules: {
      "no-restricted-imports": relativeInto(
        "(src|layers|schema|test)/",
        "An example imports `effect-awa` by its public name only."
      )
    }
  },
  {
    files: ["examples/**", "test/conformance/*.ts", "test/{bench,chaos,majors,matrix,model,restore,stress,tools}/**"],
    rules: { "no-console": "off" }
  },
  { files: ["**/*.mjs"], extends: [tseslint.configs.disableTypeChecked] }
)
