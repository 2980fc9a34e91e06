import * as Command from "@effect/cli/Command"
import * as Options from "@effect/cli/Options"
import * as Console from "effect/Console"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Storage from "../Storage.js"
import type * as StorageStatus from "../StorageStatus.js"
import { InvalidStorageOption } from "../StorageError.js"
import { databaseUrl, schema, urlOf, urlRule } from "./options.js"

const yes = Options.boolean("yes").pipe(
  Options.withDescription("Do it. Without this nothing is done; what would be needed is said.")
)

const connection = (options: {
  readonly databaseUrl: Parameters<typeof urlOf>[0]
  readonly schema: string
}): Effect.Effect<Storage.StorageOptions, InvalidStorageOption> =>
  urlOf(options.databaseUrl).pipe(
    Effect.mapBoth({
      onFailure: () => new InvalidStorageOption({ option: "url", rule: urlRule }),
      onSuccess: (url) => ({ url, schema: options.schema })
    })
  )

/** To the two greatest units: an operator compares ages, and does not add them up. */
const show = (duration: Duration.Duration | undefined): string =>
  duration === undefined
    ? "-"
    : Duration.format(Duration.seconds(Math.floor(Duration.toSeconds(duration))))
        .split(" ")
        .slice(0, 2)
        .join(" ")

const megabytes = (bytes: bigint): string => `${(Number(bytes) / 1024 ** 2).toFixed(1)} MB`

const table = (rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  return rows
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd()
    )
    .join("\n")
}

const database = (status: StorageStatus.StorageStatus): string => {
  switch (status.database) {
    case "ours":
      return "The installation belongs to this database."
    case "copy":
      return "This database is a copy. The first runtime adopts it; or `awa storage rebase` does, at once."
    case "refused":
      return `No runtime starts on this database: ${status.fault ?? ""}. Run \`awa storage rebase\`.`
  }
}

const forHowLong = (duration: Duration.Duration): string => (Duration.isFinite(duration) ? show(duration) : "ever")

const history = ({ historyReach, retention }: StorageStatus.StorageStatus): string =>
  `Completed jobs can be read back to ${show(historyReach)} ago. ` +
  (retention === undefined
    ? "No runtime is alive to say for how long they are kept."
    : `The settings of ${retention.runtimes} live runtimes keep them for at least ${forHowLong(retention.completedHistory)}, ` +
      `and for about ${forHowLong(retention.ringSpan)} while segments are rotated by age; failed, discarded and cancelled ` +
      `jobs for ${forHowLong(retention.terminal)}, dead letters for ${forHowLong(retention.deadLetter)}.`)

const blockers = (status: StorageStatus.StorageStatus): string =>
  table([
    ["segment", "what", "who", "since", "detail"],
    ...status.blockers.map((blocker) => [
      String(blocker.segment),
      blocker.reason,
      blocker.gid !== undefined
        ? `prepared ${blocker.gid}`
        : blocker.pid !== undefined
          ? `pid ${blocker.pid}`
          : blocker.queue !== undefined
            ? `queue ${blocker.queue}${blocker.priority === undefined ? "" : `, priority ${blocker.priority}`}`
            : "-",
      show(blocker.age),
      blocker.detail
    ])
  ])

const describe = (status: StorageStatus.StorageStatus): string =>
  [
    database(status),
    "",
    table([
      ["segment", "generation", "state", "opened", "sealed", "drained", "size"],
      ...status.segments.map((segment) => [
        String(segment.slot),
        String(segment.generation),
        segment.current ? `${segment.state}, current` : segment.state,
        show(segment.opened),
        show(segment.sealed),
        show(segment.drained),
        megabytes(segment.bytes)
      ])
    ]),
    "",
    `${status.freeSegments} of ${status.segments.length} segments are free` +
      (status.freeSegments === 0 ? ": the current one grows until the oldest is drained and pruned." : "."),
    history(status),
    ...(status.blockers.length === 0 ? [] : ["", "What keeps the oldest segment in the ring:", blockers(status)])
  ].join("\n")

const summary = (report: StorageStatus.RebaseReport): string =>
  [
    `Rebased: ${report.reason}.`,
    `${report.released} attempts were open: their jobs run again first (${report.releasedLeases} had left the ring).`,
    `${report.moved} unclaimed jobs were moved from the ring, behind ${report.keptInHead} that had left it earlier.`,
    `${report.parked} attempts stay parked for their callbacks.`,
    `New jobs go to segment ${report.segment}; ${report.drainedSegments} segments are kept as history` +
      (report.truncatedSegment === undefined
        ? "."
        : `, segment ${report.truncatedSegment} had to be emptied, none being free.`),
    `The new installation id is ${report.installationId}: tokens of the original do not match here.`
  ].join("\n")

const statusCommand = Command.make("status", { databaseUrl, schema }, (options) =>
  connection(options).pipe(
    Effect.flatMap(Storage.status),
    Effect.flatMap((status) => Console.log(describe(status)))
  )
).pipe(Command.withDescription("Show the ring: its segments, their ages, and how far back history reaches."))

const rebaseCommand = Command.make(
  "rebase",
  { databaseUrl, schema, yes },
  Effect.fnUntraced(function* (options) {
    const where = yield* connection(options)
    if (!options.yes) {
      const status = yield* Storage.status(where)
      yield* Console.log(database(status))
      return yield* new InvalidStorageOption({
        option: "yes",
        rule: "nothing was done; stop every runtime and the application, take the original out of use, and give --yes"
      })
    }
    const report = yield* Storage.rebase(where)
    yield* Console.log(summary(report))
  })
).pipe(
  Command.withDescription(
    "Make a database that was restored from a dump, or copied, this server's own, so that runtimes start on it again."
  )
)

/** @internal */
export const storage = Command.make("storage").pipe(
  Command.withDescription("Look at the storage, and mend a restored one."),
  Command.withSubcommands([statusCommand, rebaseCommand])
)
