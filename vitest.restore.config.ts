import base from "./vitest.config.js"

// Restores between real servers, each of which takes seconds to make: `npm run restore`. The rules themselves are tested on
// one server, in test/pg/restore.test.ts.
export default {
  ...base,
  test: { ...base.test, include: ["test/restore/**/*.servers.ts"], globalSetup: [], testTimeout: 300_000 }
}
