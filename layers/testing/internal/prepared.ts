/**
 * The texts behind the names of prepared statements and portals, so that an Execute can be matched by its SQL.
 *
 * @since 0.1.0
 */
import type { Frame } from "./frames.js"
import { strings } from "./messages.js"

/**
 * A statement's text, or the captured start of it.
 *
 * @since 0.1.0
 * @category models
 */
export interface Text {
  readonly sql: string
  readonly truncated: boolean
}

/** Names a client never closes must not grow the proxy for ever; drivers keep far fewer. */
const maxNames = 10_000

const remember = (map: Map<string, Text>, name: string, text: Text): void => {
  map.delete(name)
  map.set(name, text)
  if (map.size <= maxNames) return
  const oldest = map.keys().next()
  if (oldest.done !== true) map.delete(oldest.value)
}

/**
 * The text of a Query.
 *
 * @since 0.1.0
 * @category decoders
 */
export const queryText = (frame: Frame): Text => ({
  sql: strings(frame.body, 1)[0] ?? "",
  truncated: frame.body.length < frame.length
})

/**
 * The prepared statements and portals of one session, unnamed ones included.
 *
 * @since 0.1.0
 * @category constructors
 */
export class Prepared {
  readonly #statements = new Map<string, Text>()
  readonly #portals = new Map<string, Text>()

  parse(frame: Frame): void {
    const [name, sql] = strings(frame.body, 2)
    if (name === undefined || sql === undefined) return
    remember(this.#statements, name, { sql, truncated: frame.body.length < frame.length })
  }

  bind(frame: Frame): void {
    const [portal, statement] = strings(frame.body, 2)
    if (portal === undefined || statement === undefined) return
    const text = this.#statements.get(statement)
    if (text === undefined) this.#portals.delete(portal)
    else remember(this.#portals, portal, text)
  }

  /** The text of the executed portal, once: fetching more rows from it is not another execution. */
  execute(frame: Frame): Text | undefined {
    const [portal] = strings(frame.body, 1)
    if (portal === undefined) return undefined
    const text = this.#portals.get(portal)
    this.#portals.delete(portal)
    return text
  }

  close(frame: Frame): void {
    const kind = frame.body.toString("latin1", 0, 1)
    const [name] = strings(frame.body.subarray(1), 1)
    if (name === undefined) return
    if (kind === "S") this.#statements.delete(name)
    if (kind === "P") this.#portals.delete(name)
  }
}
