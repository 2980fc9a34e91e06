import * as Predicate from "effect/Predicate"
import type { Finalizable } from "../Driver.js"
import type { FinalizationReceipt } from "../FinalizationReceipt.js"
import { TokenRejected } from "../JobError.js"
import {
  completionClosing,
  completionText,
  expectationOf,
  knownFields,
  readReceipt,
  tokenValues
} from "./completionCall.js"
import { noteExpected } from "./expectations.js"
import { type Running, runningOf } from "./makeToken.js"
import { type PgClient, sendClosing, type Told } from "./pgClient.js"
import { firstRow, rowWith } from "./pgResult.js"

/** The attempt as its worker knows it. Throws where no caller-owned handler runs it here. */
export const running = ({ token }: Finalizable<string>): Running => {
  const attempt = runningOf(token)
  if (attempt !== undefined) return attempt
  throw new TokenRejected({ sqlState: "WA003", reason: "no caller-owned handler runs this attempt here" })
}

/**
 * The completion of an attempt and COMMIT, to be sent on a client with an open transaction: in one round trip, but for progress where
 * nothing can be prepared, which is the application's and belongs in no statement's text.
 *
 * @internal
 */
export const pgCompletion = <Kind extends string>(
  attempt: Finalizable<Kind>
): {
  /** A statement that makes COMMIT fail unless this completion is made; its answer is to be read. */
  readonly expectation: string
  readonly expected: (result: unknown) => void
  readonly send: (client: PgClient, told: Told) => void
  readonly read: (result: unknown) => FinalizationReceipt<Kind> | undefined
} => {
  const { kind, token } = attempt
  const { progress, schema } = running(attempt)
  const fields = knownFields(token)
  if (fields instanceof TokenRejected) throw fields
  return {
    expectation: expectationOf(schema)(fields),
    expected: (result) => {
      const row = rowWith("xid", result)
      if (Predicate.hasProperty(row, "xid") && typeof row.xid === "string") noteExpected(token, BigInt(row.xid))
    },
    send: (client, told) => {
      const prepared = { text: completionText(schema), values: [...tokenValues(fields), progress() ?? null] }
      sendClosing(client, progress() === undefined ? completionClosing(schema)(fields) : undefined, prepared, told)
    },
    read: (result) => {
      const row = firstRow(result)
      return Predicate.hasProperty(row, "xid") && Predicate.hasProperty(row, "at")
        ? readReceipt(kind, token, row.xid, row.at)
        : undefined
    }
  }
}
