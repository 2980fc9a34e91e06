/** A hundred jobs in one transaction of the application, by the functions of schema/CONTRACT.md: what any language can do. */
import { setTimeout as sleep } from "node:timers/promises"
import pg from "pg"
import { accountOf, changeAccounts, groupSize, type Payload, type Place, type Running, type Work } from "./serve.js"

const loops = 4

interface Attempt {
  readonly job_id: string
  readonly run_lease: string
  readonly claim_slot: number
  readonly receipt_id: string
  readonly batch_id: string
  readonly batch_index: number
  readonly args: Payload
}

const complete = `
select count(*)::integer as completed
from awa.complete_jobs($1::bigint[], $2::bigint[], $3::integer[], $4::bigint[], $5::bigint[], $6::integer[])`

export const grouped = async ({ url }: Place, { queues: [queue = ""], started }: Work): Promise<Running> => {
  const runtime = new pg.Pool({ connectionString: url, max: loops })
  const application = new pg.Pool({ connectionString: url, max: loops })
  const registered = await runtime.query<{ id: string }>("select awa.worker_register('bench') as id")
  const groups: Array<Array<Attempt>> = []
  const nextGroup = async (): Promise<ReadonlyArray<Attempt>> => {
    if (groups.length === 0) {
      const { rows } = await runtime.query<Attempt>(
        "select job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index, args from awa.worker_claim($1, $2, $3) where job_id is not null",
        [registered.rows[0]?.id, queue, loops * groupSize]
      )
      while (rows.length > 0) groups.push(rows.splice(0, groupSize))
    }
    return groups.shift() ?? []
  }
  // one after the other: a lane is one claimer's at a time, and the second would only be told to come again
  let last: Promise<unknown> = Promise.resolve()
  const groupInTurn = () => {
    const next = last.then(nextGroup)
    last = next.catch(() => undefined)
    return next
  }
  let stopped = false
  const loop = async () => {
    while (!stopped) {
      const rows = await groupInTurn()
      if (rows.length === 0) {
        await sleep(20)
        continue
      }
      const client = await application.connect()
      await client.query("begin")
      for (const { args } of rows) started(args)
      await client.query(changeAccounts, [rows.map(({ args }) => accountOf(args))])
      await client.query(complete, [
        rows.map((row) => row.job_id),
        rows.map((row) => row.run_lease),
        rows.map((row) => row.claim_slot),
        rows.map((row) => row.receipt_id),
        rows.map((row) => row.batch_id),
        rows.map((row) => row.batch_index)
      ])
      await client.query("commit")
      client.release()
    }
  }
  const running = Array.from({ length: loops }, loop)
  const end = async () => {
    stopped = true
    await Promise.all(running)
  }
  return {
    settled: end,
    close: async () => {
      await end()
      await Promise.all([runtime.end(), application.end()])
    }
  }
}
