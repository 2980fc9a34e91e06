/**
 * The account in words, and everything that is wrong with it.
 */
import type { Account } from "./account.js"
import { invoiceCount } from "./inbox.js"
import { atLeast, type Damage } from "./storm.js"

export interface Outcome {
  readonly account: Account
  readonly damage: Damage
  readonly provider: { readonly calls: number; readonly charges: number }
  /** What the workers that were stopped, not killed, said was still in flight when they had drained. */
  readonly inFlight: ReadonlyArray<unknown>
}

export interface Line {
  readonly label: string
  readonly value: number
  readonly note: string
}

export const number = (value: number) => value.toLocaleString("en-US")

export const lines = ({ account, damage, inFlight, provider }: Outcome): ReadonlyArray<Line> => {
  const { abandoned, books, reconciled, work } = account
  const counts = (parts: Readonly<Record<string, number>>) =>
    Object.entries(parts)
      .map(([name, value]) => `${name} ${number(value)}`)
      .join(", ")
  return [
    { label: "charge jobs", value: work.chargeJobs, note: counts({ completed: work.chargesCompleted }) },
    {
      label: "executions",
      value: work.executions,
      note: counts({ completed: work.completed, rescued: work.rescued, "failed and retried": work.retried })
    },
    {
      label: "ledger rows",
      value: books.ledgerRows,
      note: `invoices booked ${counts({ once: books.once, "more than once": books.doubled, never: books.missing })}`
    },
    { label: "invoices paid", value: books.paid, note: counts({ "right amount in the ledger": books.rightAmount }) },
    {
      label: "follow-up jobs",
      value: books.receiptJobs,
      note: counts({ "invoices with exactly one": books.receiptOnce, "receipts sent": books.receiptsSent })
    },
    { label: "provider calls", value: provider.calls, note: counts({ "distinct charges": provider.charges }) },
    {
      label: "stale finalizations",
      value: damage.refused,
      note: `rejected with WA001; transactions held open too long: ${number(damage.held)}`
    },
    {
      label: "ambiguous commits",
      value: reconciled,
      note: `reconciled; answers lost after the server had committed: ${number(damage.lostAnswers)}`
    },
    { label: "jobs rescued", value: work.rescued, note: "from dead workers and from transactions held too long" },
    { label: "workers killed", value: damage.kills.length, note: `with charges in flight: ${abandoned.join(", ")}` },
    { label: "still in flight", value: work.open, note: `in the workers that were left: ${inFlight.join(", ")}` }
  ]
}

/** What is wrong with an account that ought to be of exactly-once effects under a storm. */
export const complaints = ({ account, damage, inFlight, provider }: Outcome): ReadonlyArray<string> => {
  const { abandoned, books, reconciled, work } = account
  const mustBe = (what: string, value: number, expected: number) =>
    value === expected ? [] : [`${what}: ${number(value)}, and not ${number(expected)}`]
  const mustReach = (what: string, value: number) =>
    value >= atLeast ? [] : [`${what}: only ${number(value)}, fewer than ${number(atLeast)}`]
  return [
    ...mustBe("charge jobs", work.chargeJobs, invoiceCount),
    ...mustBe("completed charge jobs", work.chargesCompleted, invoiceCount),
    ...mustBe("jobs that are not completed", work.unfinishedJobs, 0),
    ...mustBe("completed executions", work.completed, invoiceCount),
    ...mustBe("executions completed in the application's transaction", work.callerOwned, invoiceCount),
    ...mustBe("invoices", books.invoices, invoiceCount),
    ...mustBe("ledger rows", books.ledgerRows, invoiceCount),
    ...mustBe("invoices with exactly one ledger row", books.once, invoiceCount),
    ...mustBe("invoices with the right amount in the ledger", books.rightAmount, invoiceCount),
    ...mustBe("invoices paid", books.paid, invoiceCount),
    ...mustBe("follow-up jobs", books.receiptJobs, invoiceCount),
    ...mustBe("invoices with exactly one follow-up job", books.receiptOnce, invoiceCount),
    ...mustBe("receipts sent", books.receiptsSent, invoiceCount),
    ...mustBe("charges at the provider", provider.charges, invoiceCount),
    ...mustBe("charges in the ledger", books.charges, invoiceCount),
    ...mustBe("attempts in flight on the server", work.open, 0),
    ...mustBe("workers that drained", inFlight.filter((attempts) => attempts === 0).length, 2),
    ...mustReach("workers killed with charges in flight", abandoned.filter((charges) => charges > 0).length),
    ...mustReach("answers to COMMIT lost after the server had committed", damage.lostAnswers),
    ...mustReach("ambiguous commits reconciled", reconciled),
    ...mustReach("stale finalizations rejected with WA001", damage.refused)
  ]
}
