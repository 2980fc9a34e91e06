import base from "./vitest.config.js"

// Runs of a real worker whose recorded events the model checker follows: `npm run model -- traces`. They need Java.
export default {
  ...base,
  test: { ...base.test, include: ["test/model/**/*.traces.ts"], testTimeout: 600_000 }
}
