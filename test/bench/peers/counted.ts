/** One number from the peer's own tables, by a connection that is opened once. */
import pg from "pg"

const clients = new Map<string, Promise<pg.Client>>()

const connected = (url: string): Promise<pg.Client> => {
  const known = clients.get(url)
  if (known !== undefined) return known
  const client = new pg.Client({ connectionString: url })
  const connecting = client.connect().then(() => client)
  clients.set(url, connecting)
  return connecting
}

/** `text` selects one integer named `left`. */
export const counted = async (url: string, text: string, values: ReadonlyArray<unknown> = []): Promise<number> => {
  const client = await connected(url)
  const { rows } = await client.query<{ left: number }>(text, [...values])
  return rows[0]?.left ?? Number.NaN
}
