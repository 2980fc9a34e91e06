/**
 * Processes of the server's world: no inherited secrets, a working directory its account can enter, its own session.
 */
import type { ChildProcess, SpawnOptions } from "node:child_process"
import { execFile } from "node:child_process"
import { Data, Effect, Option } from "effect"

/** The account a process runs as: none is the one we run as ourselves. */
export type Account = Option.Option<{ readonly uid: number; readonly gid: number }>

/** A command could not be started, or ended with something else than 0. */
export class CommandFailed extends Data.TaggedError("CommandFailed")<{
  readonly message: string
  readonly stderr: string
}> {}

/**
 * Only what a process needs to be found and linked: our environment may hold secrets, and `PG…` variables and locales
 * would change what PostgreSQL does.
 */
const environment = () => {
  const { LD_LIBRARY_PATH, PATH } = process.env
  return { LC_ALL: "C", ...(PATH && { PATH }), ...(LD_LIBRARY_PATH && { LD_LIBRARY_PATH }) }
}

/** The options every process of a server has in common. */
export const spawnOptions = (account: Account, cwd: string) =>
  ({
    cwd,
    env: environment(),
    // A session of its own: the terminal's Ctrl-C is for us, and what is to end then, we end in order.
    detached: true,
    ...Option.getOrElse(account, () => ({}))
  }) satisfies SpawnOptions

/** Ends a process with those it started, and waits until none of them can touch a file any more. */
const endGroup = (child: ChildProcess) =>
  Effect.async<void>((resume) => {
    if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) {
      resume(Effect.void)
      return
    }
    child.once("close", () => resume(Effect.void))
    process.kill(-child.pid, "SIGKILL")
  })

/** Runs a command to its end; interruption kills it. */
export const execute = (command: string, args: ReadonlyArray<string>, account: Account = Option.none(), cwd = "/") =>
  Effect.async<{ readonly stdout: string; readonly stderr: string }, CommandFailed>((resume) => {
    // Most failures to start are answered, but one to become the account is thrown.
    try {
      const child = execFile(command, args, spawnOptions(account, cwd), (error, stdout, stderr) =>
        resume(
          error === null
            ? Effect.succeed({ stdout, stderr })
            : Effect.fail(new CommandFailed({ message: error.message, stderr }))
        )
      )
      return endGroup(child)
    } catch (cause) {
      resume(Effect.fail(new CommandFailed({ message: String(cause), stderr: "" })))
      return Effect.void
    }
  })
