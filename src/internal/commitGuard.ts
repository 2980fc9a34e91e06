import type { Finalizations } from "../ApplicationTransaction.js"
import { quoteLiteral } from "./renderSql.js"

/** @internal */
export const makeFinalizations = (): Finalizations => {
  const noted: Array<string> = []
  let failed = false
  return {
    noted,
    note: (mark) => void noted.push(mark),
    fail: () => {
      failed = true
    },
    failed: () => failed
  }
}

/** @internal What `complete_job` appends to `awa.finalized` for a receipt. */
export const finalizationMark = (schema: string, receiptId: bigint): string => `[${schema}/${receiptId}]`

/**
 * COMMIT, preceded in the same round trip by the proof that every noted finalization is still in place: `complete_job` writes
 * its receipt into a transaction-local setting, and a rollback to a savepoint takes both back. When the proof fails, COMMIT
 * is not reached (contract C-41).
 *
 * @internal
 */
export const guardedCommit = (finalizations: Finalizations): string => {
  if (finalizations.noted.length === 0) return "commit"
  const marks = finalizations.noted.map(quoteLiteral).join(", ")
  const body =
    "begin " +
    `if exists (select from pg_catalog.unnest(array[${marks}]) as m ` +
    "where pg_catalog.strpos(coalesce(pg_catalog.current_setting('awa.finalized', true), ''), m) = 0) then " +
    "raise exception using errcode = 'WA007', message = 'the transaction would commit without its completion'; " +
    "end if; end"
  return `do ${quoteLiteral(body)}; commit`
}
