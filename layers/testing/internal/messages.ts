/**
 * What the proxy reads in PostgreSQL messages: type bytes, and decoders for the few bodies that matter to it. Every
 * decoder takes the captured start of a body and is total: a proxy has no business failing on what it only watches.
 *
 * @since 0.1.0
 */

const code = (letter: string): number => letter.charCodeAt(0)

/**
 * Messages a client sends.
 *
 * @since 0.1.0
 * @category constants
 */
export const Frontend = {
  startup: 0,
  bind: code("B"),
  close: code("C"),
  copyData: code("d"),
  copyDone: code("c"),
  copyFail: code("f"),
  describe: code("D"),
  execute: code("E"),
  flush: code("H"),
  functionCall: code("F"),
  parse: code("P"),
  query: code("Q"),
  sync: code("S"),
  terminate: code("X")
}

/**
 * Messages a server sends.
 *
 * @since 0.1.0
 * @category constants
 */
export const Backend = {
  backendKeyData: code("K"),
  commandComplete: code("C"),
  copyInResponse: code("G"),
  dataRow: code("D"),
  emptyQueryResponse: code("I"),
  errorResponse: code("E"),
  notificationResponse: code("A"),
  portalSuspended: code("s"),
  readyForQuery: code("Z"),
  rowDescription: code("T")
}

const small = 1024

/**
 * How much of a client's message to capture: statement texts up to `maxStatement`, names, nothing else.
 *
 * @since 0.1.0
 * @category constants
 */
export const captureFrontend =
  (maxStatement: number) =>
  (type: number): number => {
    switch (type) {
      case Frontend.query:
      case Frontend.parse:
        return maxStatement
      case Frontend.bind:
      case Frontend.close:
      case Frontend.execute:
        return small
      default:
        return 0
    }
  }

/**
 * How much of a server's message to capture. An ErrorResponse names its SQLSTATE among its first fields.
 *
 * @since 0.1.0
 * @category constants
 */
export const captureBackend = (type: number): number => {
  switch (type) {
    case Backend.backendKeyData:
    case Backend.commandComplete:
    case Backend.errorResponse:
    case Backend.readyForQuery:
      return small
    default:
      return 0
  }
}

/**
 * The zero-terminated strings at the start of a body, at most `max`. The last one may have been cut by the capture.
 *
 * @since 0.1.0
 * @category decoders
 */
export const strings = (body: Buffer, max: number): ReadonlyArray<string> => {
  const found: Array<string> = []
  let offset = 0
  while (found.length < max && offset < body.length) {
    const end = body.indexOf(0, offset)
    found.push(body.toString("utf8", offset, end < 0 ? body.length : end))
    if (end < 0) break
    offset = end + 1
  }
  return found
}

/**
 * The SQLSTATE of an ErrorResponse; `XXXXX` if it has none, so that an error is never counted as no error.
 *
 * @since 0.1.0
 * @category decoders
 */
export const sqlState = (body: Buffer): string =>
  strings(body, 32)
    .find((field) => field.startsWith("C"))
    ?.slice(1) ?? "XXXXX"

/**
 * Whether a session is idle, in a transaction block, or in a failed one.
 *
 * @since 0.1.0
 * @category models
 */
export type TransactionStatus = "I" | "T" | "E"

/**
 * The transaction status in a ReadyForQuery.
 *
 * @since 0.1.0
 * @category decoders
 */
export const transactionStatus = (body: Buffer): TransactionStatus | undefined => {
  const status = body.toString("latin1", 0, 1)
  return status === "I" || status === "T" || status === "E" ? status : undefined
}

/**
 * The process id in a BackendKeyData.
 *
 * @since 0.1.0
 * @category decoders
 */
export const backendPid = (body: Buffer): number | undefined => (body.length < 4 ? undefined : body.readInt32BE(0))

/**
 * The parameters of a StartupMessage (`user`, `database`, `application_name`, …), or `undefined` for the other
 * untyped messages.
 *
 * @since 0.1.0
 * @category decoders
 */
export const startupParameters = (body: Buffer): ReadonlyMap<string, string> | undefined => {
  if (body.length < 4 || body.readUInt32BE(0) >>> 16 !== 3) return undefined
  const fields = strings(body.subarray(4), 1_000)
  const parameters = new Map<string, string>()
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const [name, value] = [fields[i], fields[i + 1]]
    if (name !== undefined && value !== undefined && name !== "") parameters.set(name, value)
  }
  return parameters
}

/**
 * The codes in the untyped messages that open a connection in place of a protocol version.
 *
 * @since 0.1.0
 * @category constants
 */
export const Opening = {
  cancelRequest: 80877102,
  sslRequest: 80877103,
  gssEncRequest: 80877104
}

/**
 * Whether an untyped message asks for encryption and waits for one byte of answer.
 *
 * @since 0.1.0
 * @category decoders
 */
export const asksForEncryption = (body: Buffer): boolean => {
  const opening = body.length < 4 ? 0 : body.readUInt32BE(0)
  return opening === Opening.sslRequest || opening === Opening.gssEncRequest
}
