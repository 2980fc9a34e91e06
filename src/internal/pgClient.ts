import * as Predicate from "effect/Predicate"
import { beginText } from "./beginText.js"
import { rowWith } from "./pgResult.js"

/** A client of node-postgres, as far as transactions are made of it: `@effect/sql-pg` keeps one on each of its connections. */
export interface PgClient {
  readonly query: (text: string, told: Told) => unknown
  readonly processID?: unknown
  readonly connection?: unknown
  readonly pipeline?: unknown
}

/** One answer, or an error; the rows of several statements are an array of results. */
export type Told = (error: unknown, result?: unknown) => void

/** @internal */
export const isPgClient = (client: unknown): client is PgClient =>
  Predicate.hasProperty(client, "query") && Predicate.isFunction(client.query)

/** @internal Whether the driver knows that no transaction is open: the server says so with each answer. Older ones do not tell. */
export const isIdleClient = (client: unknown): boolean =>
  Predicate.hasProperty(client, "getTransactionStatus") &&
  Predicate.isFunction(client.getTransactionStatus) &&
  Reflect.apply(client.getTransactionStatus, client, []) === "I"

/** What was learned of a connection by its first transaction. */
interface Learned {
  readonly version: number
  /** What is prepared on it stays: its backend is the one that its driver greeted, and no pooler's. */
  readonly direct: boolean
  /** The completion's text that is prepared on it. */
  prepared: string | undefined
}

const learned = new WeakMap<object, Learned>()

/** Somebody takes prepared statements off our connections (`DISCARD ALL`): from then on none is relied upon. */
let robbed = false

const firstLook = (limit: number): string =>
  "; select pg_catalog.current_setting('server_version_num') as version, pg_catalog.pg_backend_pid()::text as pid, " +
  "case when pg_catalog.current_setting('server_version_num')::integer >= 170000 " +
  "then pg_catalog.set_config('transaction_timeout', '0', true) " +
  `|| pg_catalog.set_config('transaction_timeout', '${limit}', true) end`

const learn = (client: PgClient, result: unknown): void => {
  const row = rowWith("pid", result)
  if (!Predicate.hasProperty(row, "version") || !Predicate.hasProperty(row, "pid")) return
  const direct = Predicate.isNumber(client.processID) && String(client.processID) === row.pid
  learned.set(client, { version: Number(row.version), direct, prepared: undefined })
}

/**
 * BEGIN with the server's own limits; with the first one of a connection its server's version is learned, and whether a pooler is
 * between. `first` is a statement to begin with, in the same round trip.
 *
 * @internal
 */
export const sendBegin = (client: PgClient, maximumMillis: number, told: Told, first?: string): void => {
  const known = learned.get(client)
  const andFirst = first === undefined ? "" : `; ${first}`
  if (known !== undefined) return void client.query(beginText(known.version, maximumMillis) + andFirst, told)
  const text = beginText(0, maximumMillis) + firstLook(Math.ceil(maximumMillis) + 1_000)
  client.query(text + andFirst, (error, result) => {
    if (!Predicate.isTruthy(error)) learn(client, result)
    told(error, result)
  })
}

/** The protocol's messages, as the driver's own cursors send them. */
interface Wire {
  readonly stream: { readonly cork: () => void; readonly uncork: () => void }
  readonly close: (message: { readonly type: "S"; readonly name: string }) => void
  readonly parse: (message: { readonly name: string; readonly text: string }) => void
  readonly bind: (message: { readonly statement: string; readonly values: ReadonlyArray<string | null> }) => void
  readonly execute: (message: { readonly portal: string }) => void
  readonly sync: () => void
}

const isWire = (connection: unknown): connection is Wire =>
  ["close", "parse", "bind", "execute", "sync", "stream"].every((name) => Predicate.hasProperty(connection, name))

const statements = { complete: "effect_awa_complete", commit: "effect_awa_commit" }

/**
 * `complete_job` and COMMIT in one round trip, prepared: the server skips COMMIT when the completion fails, as all that follows an error
 * before the next Sync. Parsing and planning the call anew is a fifth of what it costs.
 *
 * What node-postgres calls its queries by; a query of this form is what its cursors are too.
 */
class Closing {
  readonly #known: Learned
  readonly #text: string
  readonly #values: ReadonlyArray<string | null>
  readonly #told: Told
  readonly #tags: Array<string> = []
  #row: ReadonlyArray<unknown> = []
  #failed = false

  constructor(known: Learned, text: string, values: ReadonlyArray<string | null>, told: Told) {
    this.#known = known
    this.#text = text
    this.#values = values
    this.#told = told
  }

  submit(wire: Wire): void {
    wire.stream.cork()
    try {
      if (this.#known.prepared !== this.#text) {
        for (const name of Object.values(statements)) wire.close({ type: "S", name })
        wire.parse({ name: statements.complete, text: this.#text })
        wire.parse({ name: statements.commit, text: "commit" })
      }
      wire.bind({ statement: statements.complete, values: this.#values })
      wire.execute({ portal: "" })
      wire.bind({ statement: statements.commit, values: [] })
      wire.execute({ portal: "" })
      wire.sync()
    } finally {
      wire.stream.uncork()
    }
  }

  handleDataRow({ fields }: { readonly fields: ReadonlyArray<unknown> }): void {
    this.#row = fields
  }

  handleCommandComplete({ text }: { readonly text: string }): void {
    this.#tags.push(text)
  }

  handleError(error: unknown): void {
    if (this.#failed) return
    this.#failed = true
    this.#known.prepared = undefined
    if (Predicate.hasProperty(error, "code") && error.code === "26000") robbed = true
    this.#told(error)
  }

  handleReadyForQuery(): void {
    if (this.#failed) return
    this.#known.prepared = this.#text
    const [xid, at] = this.#row
    this.#told(undefined, [{ command: "SELECT", rows: [{ xid, at }] }, { command: this.#tags.at(-1) }])
  }

  handleRowDescription(): void {}
  handleEmptyQuery(): void {}
  handlePortalSuspended(): void {}
}

/**
 * A completion and COMMIT, in one round trip: prepared where the connection is known to be direct, and as the text otherwise. Where there
 * is no such text, in two.
 *
 * @internal
 */
export const sendClosing = (
  client: PgClient,
  text: string | undefined,
  prepared: { readonly text: string; readonly values: ReadonlyArray<string | null> },
  told: Told
): void => {
  const known = learned.get(client)
  const query: unknown = client.query
  if (!Predicate.isFunction(query)) return told(new Error("the client has no query"))
  if (!robbed && known?.direct === true && client.pipeline !== true && isWire(client.connection)) {
    Reflect.apply(query, client, [new Closing(known, prepared.text, prepared.values, told)])
  } else if (text !== undefined) {
    client.query(`${text}commit`, told)
  } else {
    const committing: Told = (error, completed) =>
      error === undefined || error === null
        ? client.query("commit", (failed, committed) => told(failed, [completed, committed]))
        : told(error)
    Reflect.apply(query, client, [prepared.text, prepared.values, committing])
  }
}
