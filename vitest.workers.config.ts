import { findToolchains } from "./test/workers/toolchains.js"
import base from "./vitest.config.js"

// Workers in other languages, as processes: `npm run workers`. What their calls promise is tested in test/pg/contract*.test.ts.
const toolchains = findToolchains()

export default {
  ...base,
  test: {
    ...base.test,
    include: ["test/workers/**/*.workers.ts"],
    testTimeout: 120_000,
    provide: { toolchains }
  }
}
