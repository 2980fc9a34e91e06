import * as Predicate from "effect/Predicate"

/**
 * Ends a driver's connection at once. Its own `end` waits for statements that are under way, which behind a partition is for
 * ever, and its type does not show the socket.
 *
 * @internal
 */
export const destroySocket = (client: unknown): void => {
  if (!Predicate.hasProperty(client, "connection") || !Predicate.hasProperty(client.connection, "stream")) return
  const { stream } = client.connection
  if (Predicate.hasProperty(stream, "destroy") && typeof stream.destroy === "function") {
    Reflect.apply(stream.destroy, stream, [])
  }
}
