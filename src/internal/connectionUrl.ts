import * as Redacted from "effect/Redacted"
import * as Pg from "pg"

const form = "expected postgres://user:password@host:port/database"

/**
 * The rule that a connection url breaks, without the url: it holds the password. The driver's own parser is asked too, since
 * it throws where a pool opens its connections, which nobody could catch there.
 *
 * @internal
 */
export const urlFault = (url: Redacted.Redacted): string | undefined => {
  const connectionString: unknown = Redacted.value(url)
  if (typeof connectionString !== "string" || !/^(postgres(ql)?:\/\/|socket:|\/)/.test(connectionString)) return form
  try {
    const client = new Pg.Client({ connectionString }) // connects to nothing yet
    return Number.isInteger(client.port) ? undefined : form
  } catch {
    return `not a connection that the PostgreSQL driver understands; ${form}`
  }
}
