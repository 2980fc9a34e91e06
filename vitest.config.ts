import { defineConfig } from "vitest/config"

// Tests import the package by its public name; the first condition resolves it to the sources. Vitest hands these to its
// workers' Node as well, so nothing may be here that Node would not also say of a `require`.
const conditions = ["@effect-awa/source", "node"]

export default defineConfig({
  resolve: { conditions },
  ssr: { resolve: { conditions } },
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/tools/globalSetup.ts"],
    pool: "forks",
    poolOptions: { forks: { maxForks: 2 } },
    testTimeout: 60_000,
    hookTimeout: 120_000,
    teardownTimeout: 30_000
  }
})
