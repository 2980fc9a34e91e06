/**
 * The directory one server lives in: its data, its log, and nothing that outlives it.
 */
import { tmpdir } from "node:os"
import { FileSystem, Path } from "@effect/platform"
import { Effect, Option } from "effect"
import type { Account } from "./execute.js"
import { EmbeddedPostgresError } from "./errors.js"

/** Where a server keeps what. */
export interface Workspace {
  readonly root: string
  readonly data: string
  readonly log: string
  readonly settings: string
  /** Until the data directory is there. */
  readonly password: string
}

const othersMayEnter = 0o001
const othersMayWrite = 0o002
const sticky = 0o1000

/** The modes of a directory and of all above it. */
const modesOf = (directory: string) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const ancestors = [yield* fs.realPath(directory)]
    for (const child of ancestors) {
      const parent = path.dirname(child)
      if (parent !== child) ancestors.push(parent)
    }
    return yield* Effect.forEach(ancestors, (ancestor) => Effect.map(fs.stat(ancestor), ({ mode }) => mode))
  })

/** Nobody but an entry's owner can replace what is in it, and the account can get there. */
const isUsable = (directory: string, account: Account) =>
  modesOf(directory).pipe(
    Effect.map((modes) =>
      modes.every(
        (mode) =>
          ((mode & othersMayWrite) === 0 || (mode & sticky) !== 0) &&
          (Option.isNone(account) || (mode & othersMayEnter) !== 0)
      )
    ),
    Effect.orElseSucceed(() => false)
  )

/**
 * Where temporary things go. For another account than ours it has to be a place that account can enter: root's `TMPDIR`
 * may be private, a home directory usually is.
 */
export const baseFor = (account: Account, chosen: Option.Option<string>) =>
  Effect.gen(function* () {
    const path = yield* Path.Path
    const candidates = Option.match(chosen, {
      onNone: () => [tmpdir(), "/tmp", "/var/tmp"],
      onSome: (directory) => [path.resolve(directory)]
    })
    const found = yield* Effect.findFirst(candidates, (candidate) => isUsable(candidate, account))
    return yield* Effect.mapError(
      found,
      () =>
        new EmbeddedPostgresError({
          phase: "prepare",
          message:
            `Nothing temporary can be kept in ${candidates.join(" or ")}: a directory on the way is missing, or can be ` +
            "written by everybody and is not sticky" +
            (Option.isSome(account) ? `, or is closed to the server's account (uid ${account.value.uid})` : "")
        })
    )
  })

/** A fresh directory, removed with everything in it when the scope closes. */
export const make = (
  account: Account,
  base: string,
  content: { readonly settings: string; readonly password: string }
) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const root = yield* fs.makeTempDirectoryScoped({ directory: base, prefix: "effect-awa-server-" })
    const inRoot = (name: string) => path.join(root, name)
    const workspace: Workspace = {
      root,
      data: inRoot("data"),
      log: inRoot("log"),
      settings: inRoot("settings.conf"),
      password: inRoot("password")
    }
    yield* fs.writeFileString(workspace.log, "", { mode: 0o600 })
    yield* fs.writeFileString(workspace.settings, content.settings, { mode: 0o600 })
    yield* fs.writeFileString(workspace.password, content.password, { mode: 0o600 })
    if (Option.isSome(account)) {
      const { gid, uid } = account.value
      // The directory last: from then on the account decides what a name in it stands for, and we write to none.
      for (const own of [workspace.log, workspace.settings, workspace.password, root]) yield* fs.chown(own, uid, gid)
    }
    return workspace
  })
