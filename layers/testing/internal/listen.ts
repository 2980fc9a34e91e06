/**
 * A listening socket as a scoped resource, and the way from a connection url to an address and back.
 *
 * @since 0.1.0
 */
import * as Net from "node:net"
import type { Scope } from "effect"
import { Effect } from "effect"

/**
 * Listens until the scope closes. Then nothing more is accepted, `hangUp` has to end the connections there are, and
 * the scope waits for their end. Fails with the system's message.
 *
 * @since 0.1.0
 * @category constructors
 */
export const listen = (options: {
  readonly host: string
  readonly port: number
  readonly accept: (socket: Net.Socket) => void
  readonly hangUp: () => void
}): Effect.Effect<Net.AddressInfo, string, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => Net.createServer({ allowHalfOpen: true, noDelay: true }, options.accept)),
    (server) =>
      Effect.async<void>((resume) => {
        // Calls back, with or without an error, when the last connection has closed.
        server.close(() => resume(Effect.void))
        options.hangUp()
      })
  ).pipe(
    Effect.flatMap((server) =>
      Effect.async<Net.AddressInfo, string>((resume) => {
        const onError = (error: Error) => resume(Effect.fail(error.message))
        server.once("error", onError)
        server.listen(options.port, options.host, () => {
          server.off("error", onError)
          // From here on an error concerns one connection that could not be accepted; it must not end the process.
          server.on("error", () => undefined)
          const address = server.address()
          resume(address === null || typeof address === "string" ? Effect.fail("no TCP port") : Effect.succeed(address))
        })
      })
    )
  )

/**
 * Dials a server. A `host` that begins with a slash is the directory of its Unix socket.
 *
 * @since 0.1.0
 * @category constructors
 */
export const dial = (host: string, port: number): Net.Socket =>
  host.startsWith("/")
    ? Net.createConnection({ path: `${host}/.s.PGSQL.${port}`, allowHalfOpen: true })
    : Net.createConnection({ host, port, allowHalfOpen: true, noDelay: true })

/**
 * The server a connection url names, by the defaults of libpq.
 *
 * @since 0.1.0
 * @category combinators
 */
export const addressOf = (url: URL): { readonly host: string; readonly port: number } => {
  const host = url.searchParams.get("host") ?? decodeURIComponent(url.hostname.replace(/^\[|\]$/g, ""))
  const port = Number(url.searchParams.get("port") ?? url.port)
  return { host: host === "" ? "localhost" : host, port: port === 0 ? 5432 : port }
}

/**
 * The same url with another address, and without TLS.
 *
 * @since 0.1.0
 * @category combinators
 */
export const readdressed = (url: URL, address: Net.AddressInfo): string => {
  const changed = new URL(url)
  changed.hostname = address.family === "IPv6" ? `[${address.address}]` : address.address
  changed.port = String(address.port)
  // A host in the query would win over the one above, and a demand for TLS would be refused.
  for (const name of [...changed.searchParams.keys()]) {
    if (/^(host|hostaddr|port|ssl.*)$/.test(name)) changed.searchParams.delete(name)
  }
  changed.searchParams.set("sslmode", "disable")
  return changed.toString()
}
