/** @internal How much later than the client the server ends a transaction, when the client has vanished. */
export const serverSlackMillis = 1_000

/**
 * BEGIN, with the server's own limits, whatever the role or the database says (contract C-40). From 17 on one limit is for the
 * transaction as a whole: it is switched off first, since a timer that a default has started keeps the default's time. A server
 * that cannot get rid of an answer, because its client does not read, sees none of these: the limit of its socket ends that.
 *
 * @internal
 */
export const beginText = (version: number, maximumMillis: number): string => {
  const limit = maximumMillis + serverSlackMillis
  return (
    `begin; set local statement_timeout = ${limit}; set local idle_in_transaction_session_timeout = ${limit}; ` +
    `set local tcp_user_timeout = ${limit}` +
    (version >= 170000 ? `; set local transaction_timeout = 0; set local transaction_timeout = ${limit}` : "")
  )
}
