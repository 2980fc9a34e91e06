import type { Mutant } from "../mutants.js"

const file = "src/internal/beginText.ts"
const suite = "test/pg/halfOpen.test.ts"
const frozen = "is ended by the server wherever it hangs, whatever the role says"

/** The server's own limits for an application transaction (contract C-40). */
export const limitMutants: ReadonlyArray<Mutant> = [
  {
    name: "leave an hour to a client that has vanished",
    file,
    from: "const serverSlackMillis = 1_000",
    to: "const serverSlackMillis = 3_600_000",
    suite,
    test: frozen
  },
  {
    name: "let the role's timer run on",
    file,
    from: "set local transaction_timeout = 0; set local",
    to: "set local",
    suite,
    test: frozen
  },
  {
    name: "wait for a client that does not read",
    file,
    from: "`set local tcp_user_timeout = ${limit}`",
    to: "`set local standard_conforming_strings = on`",
    suite,
    test: frozen
  },
  {
    name: "keep a role's shorter limits",
    file,
    from: "`begin; set local statement_timeout = ${limit}; set local",
    to: "`begin; set local",
    suite,
    test: "an application transaction has the time that the program gives it, whatever the role says"
  }
]
