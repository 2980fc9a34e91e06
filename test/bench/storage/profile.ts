/** Where the server's time went. */
import * as Engine from "../engine.js"
import type { Table } from "./report.js"
import type { Database } from "./server.js"

export const profiled = async (
  { extensions, url }: Database,
  wanted: boolean,
  title: string
): Promise<ReadonlyArray<Table>> => {
  if (!wanted || !extensions.has("pg_stat_statements")) return []
  const costs = await Engine.withClient(url, (client) => Engine.statements(client))
  return [
    {
      title: `${title}: statements by time, those inside functions included`,
      columns: ["statement", "calls", "ms", "ms a call", "rows", "buffers hit", "buffers read"],
      rows: costs.map((cost) => [
        `\`${cost.text.replaceAll("`", "'")}\``,
        cost.calls,
        cost.millis,
        cost.millis / cost.calls,
        cost.rows,
        cost.hits,
        cost.reads
      ])
    }
  ]
}

export const forget = async ({ extensions, url }: Database, wanted: boolean): Promise<void> => {
  if (wanted && extensions.has("pg_stat_statements")) await Engine.withClient(url, Engine.resetStatements)
}
