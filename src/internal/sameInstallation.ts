import type * as Pg from "pg"

/**
 * What a connection finds when it reaches the database that was started on. A failover to a restored copy happens behind
 * the same address and under a running process, whose start was checked long ago; but its connections are new then.
 *
 * @internal
 */
export const identity = (quotedSchema: string): string =>
  "select m.installation_id || '/' || (m.system_identifier = c.system_identifier and m.database_oid = d.oid)::text " +
  `from ${quotedSchema}.meta m, pg_control_system() c, pg_database d where d.datname = current_database()`

const limitMillis = 5_000

/**
 * Looks at a new connection before anything else uses it, once it is known what to expect.
 *
 * @internal
 */
export const sameInstallation =
  (quotedSchema: string, expected: () => string | undefined): NonNullable<Pg.PoolConfig["verify"]> =>
  (client, done) => {
    const wanted = expected()
    if (wanted === undefined) return done()
    let open = true
    const finish = (error?: Error): void => {
      if (!open) return
      open = false
      clearTimeout(timer)
      client.off("error", finish)
      done(error)
    }
    const timer = setTimeout(() => finish(new Error(`no answer within ${limitMillis} ms`)), limitMillis)
    client.on("error", finish)
    client.query(
      { text: identity(quotedSchema), rowMode: "array" },
      (error: Error | null, result: Pg.QueryArrayResult) => {
        if (error !== null) finish(error)
        else if (result.rows[0]?.[0] === wanted) finish()
        else finish(new Error("another database is there now, restored or copied; restart the runtime to learn more"))
      }
    )
  }
