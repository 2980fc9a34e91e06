/**
 * Keeping attempts, and the runtime itself, known to be alive.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Entry } from "./InFlight.js"
import * as Column from "./internal/column.js"
import { contractVersion } from "./internal/contractVersion.js"
import { monotonicMillis } from "./internal/monotonic.js"
import { tokenColumns, tokenParameters } from "./internal/tokenColumns.js"
import type { ApplicationPool } from "./ApplicationPool.js"
import type { MaintenanceSettings } from "./Maintenance.js"
import { type DatabaseError, RuntimePool } from "./RuntimePool.js"
import type { WakeupMode } from "./Wakeup.js"

/**
 * An attempt that is no longer this runtime's, and the outcome that ended it when the database still knows it.
 *
 * @since 0.1.0
 * @category models
 */
export interface Lost {
  readonly entry: Entry
  readonly outcome: string | undefined
}

/**
 * What a runtime says of itself with every beat; `runtimes` shows it.
 *
 * @since 0.1.0
 * @category models
 */
export interface RuntimeSelf {
  readonly name: string
  /** The queues that it claims of. */
  readonly queues: ReadonlyArray<string>
  /** The settings of its maintenance: the history that the fleet keeps is the least of them. */
  readonly maintenance: MaintenanceSettings
  /** The connections it may take (contract C-22). */
  readonly connections: ApplicationPool["Type"]["connections"]
  /** How it learns of work at the time of the beat (contract C-22). */
  readonly wakeup: Effect.Effect<WakeupMode>
}

/**
 * @since 0.1.0
 * @category services
 */
export class Heartbeat extends Context.Tag("effect-awa/Heartbeat")<
  Heartbeat,
  {
    /** Registers this runtime; its id is recorded with every claim. */
    readonly register: (self: RuntimeSelf) => Effect.Effect<bigint, DatabaseError>
    /** Renews the runtime's own row: the one write of an idle runtime. */
    readonly renew: (runtimeId: bigint, self: RuntimeSelf) => Effect.Effect<void, DatabaseError>
    readonly retire: (runtimeId: bigint) => Effect.Effect<void, DatabaseError>
    /** One statement for all the attempts: renews them, stores what progress is new, and answers those that are lost. */
    readonly beat: (entries: ReadonlyArray<Entry>) => Effect.Effect<ReadonlyArray<Lost>, DatabaseError>
  }
>() {}

/**
 * What this runtime can do, for those that decide what a fleet may use, and how it maintains. `callerOwned`: the contract version
 * of caller-owned completion that it knows, `queues`: where it claims (contract C-60).
 */
const capabilities = ({ connections, maintenance, queues }: RuntimeSelf, wakeup: WakeupMode): string =>
  JSON.stringify({ callerOwned: contractVersion, queues, contract: contractVersion, maintenance, connections, wakeup })

/**
 * @since 0.1.0
 * @category constructors
 */
export const make: Effect.Effect<Heartbeat["Type"], never, RuntimePool> = Effect.map(RuntimePool, (pool) => {
  const runtimeText = `select ${pool.quotedSchema}.beat_runtime($1::bigint, $2, ${contractVersion}, $3::text::jsonb)`
  const beatText = `select ord, outcome from ${pool.quotedSchema}.heartbeat(${tokenParameters(1)}, $7::text::jsonb)`
  const renew = (runtimeId: bigint | undefined, self: RuntimeSelf) =>
    Effect.flatMap(self.wakeup, (wakeup) =>
      pool.call({
        name: "beat-runtime",
        text: runtimeText,
        values: [runtimeId === undefined ? null : String(runtimeId), self.name, capabilities(self, wakeup)]
      })
    )
  return {
    register: (self) => Effect.map(renew(undefined, self), ([row]) => Column.bigint(row?.[0])),
    renew: (runtimeId, self) => Effect.asVoid(renew(runtimeId, self)),
    retire: (runtimeId) =>
      Effect.asVoid(
        pool.call({
          name: "retire-runtime",
          text: `select ${pool.quotedSchema}.retire_runtime($1::bigint)`,
          values: [String(runtimeId)]
        })
      ),
    beat: (entries) =>
      Effect.suspend(() => {
        if (entries.length === 0) return Effect.succeed([])
        const sent = entries.map((entry) => entry.progress)
        const beatAtMillis = monotonicMillis()
        const progress: Array<string> = []
        sent.forEach((value, i) => {
          if (value !== undefined && !value.flushed) progress.push(`"${i + 1}":${value.json}`)
        })
        return pool
          .call({
            name: "heartbeat",
            text: beatText,
            values: [...tokenColumns(entries.map((entry) => entry.attempt.token)), `{${progress.join(",")}}`]
          })
          .pipe(
            Effect.map((rows) => {
              const answers = rows.map(
                (row) => [Column.number(row[0]), Column.nullable(Column.string)(row[1])] as const
              )
              // somebody held its row: neither lost nor beaten for, and what it said of its progress is not stored
              const busy = new Set(answers.flatMap(([ord, outcome]) => (outcome === "busy" ? [ord] : [])))
              const lost = new Map(answers.filter(([ord]) => !busy.has(ord)))
              entries.forEach((entry, i) => {
                if (lost.has(i + 1)) return
                entry.hasState = true
                if (busy.has(i + 1)) return
                entry.aliveAtMillis = Math.max(entry.aliveAtMillis, beatAtMillis)
                const value = sent[i]
                // only what was sent is flushed: the handler may have said more since
                if (value !== undefined && entry.progress === value)
                  entry.progress = { json: value.json, flushed: true }
              })
              return entries.flatMap((entry, i): ReadonlyArray<Lost> =>
                lost.has(i + 1) ? [{ entry, outcome: lost.get(i + 1) }] : []
              )
            })
          )
      })
  }
})

/**
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<Heartbeat, never, RuntimePool> = Layer.effect(Heartbeat, make)
