/** The sabotages of expect_completion. */
import type { Sabotage } from "../sabotages.js"

const inFile = "test/pg/expectCompletion.test.ts"

export const expectSabotages: ReadonlyArray<Sabotage> = [
  {
    name: "take anybody's completion for the expected one",
    file: "042_expect_completion.sql",
    from: "c.outcome = 'completed' and c.xid = new.xid)",
    to: "c.outcome = 'completed')",
    test: `${inFile} > expect_completion of a receipt claim > makes COMMIT fail when a savepoint swallowed the stale failure`
  },
  {
    name: "take any completion of a lease for the expected one",
    file: "042_expect_completion.sql",
    from: "\n         and d.outcome = 'completed' and d.xid = new.xid)",
    to: "\n         and d.outcome = 'completed')",
    test: `${inFile} > expect_completion of a lease > makes COMMIT fail when a savepoint swallowed the stale failure`
  },
  {
    name: "take any end for the expected completion",
    file: "042_expect_completion.sql",
    from: "c.outcome = 'completed' and c.xid = new.xid)",
    to: "c.xid = new.xid)",
    test: `${inFile} > expect_completion of a receipt claim > accepts no other end of the attempt in this transaction, and no completion of another one`
  },
  {
    name: "expect a completion without its receipt",
    file: "042_expect_completion.sql",
    from: "and b.receipt_base + new.batch_index = new.receipt_id and c.outcome",
    to: "and c.outcome",
    test: `${inFile} > expect_completion of a receipt claim > accepts no other end of the attempt in this transaction, and no completion of another one`
  },
  {
    name: "know no lease when a completion was expected",
    file: "042_expect_completion.sql",
    from: "where d.job_id = new.job_id and d.run_lease = new.run_lease and d.receipt_id",
    to: "where false and d.job_id = new.job_id and d.run_lease = new.run_lease and d.receipt_id",
    test: `${inFile} > expect_completion of a lease > lets the transaction commit that completes the attempt, in every isolation level`
  },
  {
    name: "expect a completion inside a savepoint",
    file: "042_expect_completion.sql",
    from: "if v_mine <> v_xid::xid then",
    to: "if false then",
    test: `${inFile} > expect_completion > is refused inside a savepoint, whose rollback would take it back`
  },
  {
    name: "let a replica's session skip what it expected",
    file: "0002_lifecycle.sql",
    from: "enable always trigger kept;",
    to: "enable trigger kept;",
    test: `${inFile} > expect_completion > is kept whatever session_replication_role says, and by a prepared transaction`
  },
  {
    name: "ask a copied row for its completion",
    file: "042_expect_completion.sql",
    from: "if new.xid <> pg_current_xact_id() then",
    to: "if false then",
    test: `${inFile} > expect_completion > asks nothing of rows that a copy brought`
  }
]
