import base from "./vitest.config.js"

// Worker processes that are killed, suspended and started again, which takes seconds each: `npm run life`. The rules of a stop
// are tested in test/runtime/Shutdown*.test.ts.
export default {
  ...base,
  test: { ...base.test, include: ["test/life/**/*.life.ts"], testTimeout: 300_000 }
}
