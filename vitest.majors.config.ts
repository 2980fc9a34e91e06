import base from "./vitest.config.js"

// The contract's core on one major, on the server that AWA_TEST_DATABASE_URL names: `npm run majors` starts one of each.
export default {
  ...base,
  test: {
    ...base.test,
    include: [
      "test/doctor/*.test.ts",
      "test/migrations/{manifest,migrate}.test.ts",
      "test/privileges/*.test.ts",
      "test/pg/{abandoned,callbacks,claim,close,completeJob,completeJobRaces,halfOpen,heartbeat,rescue}.test.ts",
      "test/runtime/{CallerOwned,Interruption,Release}.test.ts"
    ],
    testTimeout: 180_000
  }
}
