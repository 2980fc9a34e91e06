/** DBOS Transact: a workflow per job. */
import { DBOS, DBOSClient } from "@dbos-inc/dbos-sdk"
import { PostgresDataSource } from "@dbos-inc/postgres-datasource"
import { counted } from "../counted.js"
import { accountOf, type Payload, type Place, serve } from "../serve.js"
import { versionOf } from "./versions.js"

const connections = 20
const workerConcurrency = 100
const applicationVersion = "bench"

const configure = ({ url }: Place) =>
  DBOS.setConfig({
    name: "bench",
    systemDatabaseUrl: url,
    systemDatabasePoolSize: connections,
    logLevel: "error",
    applicationVersion
  })

await serve({
  describe: {
    name: "DBOS Transact",
    version: versionOf("@dbos-inc/dbos-sdk"),
    configuration: `a workflow per job, ${workerConcurrency} at once, ${connections} connections, minPollingIntervalMs 20; one enqueue per job, ${connections} at a time`,
    guarantee: "a dead process's workflows are resumed after their last completed step",
    owned: "two transactions: the update commits with its step's checkpoint (exactly once), the workflow's completion follows"
  },
  bulk: { size: 1, calls: connections },
  install: async (place) => {
    configure(place)
    await DBOS.launch()
    await DBOS.shutdown()
    await PostgresDataSource.initializeDBOSSchema({ ...urlOptions(place) })
  },
  producer: async ({ url }) => {
    const client = await DBOSClient.create({
      systemDatabaseUrl: url,
      systemDatabasePoolSize: connections,
      applicationName: "bench"
    })
    return {
      enqueue: async (queueName, payloads) => {
        for (const payload of payloads) {
          await client.enqueue({ queueName, workflowName: "bench", appVersion: applicationVersion }, payload)
        }
      },
      close: () => client.destroy()
    }
  },
  work: async (place, { lane, queues, started }) => {
    configure(place)
    const accounts =
      lane === "owned" ? new PostgresDataSource("accounts", { ...urlOptions(place), max: connections }) : undefined
    DBOS.registerWorkflow(
      async (payload: Payload) => {
        started(payload)
        await accounts?.runTransaction(
          async () => {
            await PostgresDataSource.client`update bench_accounts set n = n + 1 where id = ${accountOf(payload)}`
          },
          { name: "change" }
        )
      },
      { name: "bench" }
    )
    await DBOS.launch()
    for (const queue of queues) {
      await DBOS.registerQueue(queue, {
        workerConcurrency: Math.ceil(workerConcurrency / queues.length),
        minPollingIntervalMs: 20,
        onConflict: "always_update"
      })
    }
    return { close: () => DBOS.shutdown() }
  },
  remaining: ({ url }) =>
    counted(
      url,
      "select count(*)::int as left from dbos.workflow_status where queue_name like 'bench%' and status <> 'SUCCESS'"
    )
})

function urlOptions({ url }: Place) {
  const { hostname, password, pathname, port, username } = new URL(url)
  return {
    host: hostname,
    port: Number(port),
    username: decodeURIComponent(username),
    password: decodeURIComponent(password),
    database: decodeURIComponent(pathname.slice(1)),
    onnotice: () => undefined
  }
}
