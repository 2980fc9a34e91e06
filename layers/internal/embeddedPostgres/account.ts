/**
 * PostgreSQL refuses to run as root, so a server started by root runs as an account without privileges.
 */
import { Effect, Option as Maybe } from "effect"
import { EmbeddedPostgresUnavailable } from "./errors.js"
import { type Account, execute } from "./execute.js"

/** Present on most machines; an account is made only where none of them is. */
const customary = ["postgres", "nobody"]
const dedicated = "effect-awa"

const numericId = (flag: "-u" | "-g", name: string) =>
  execute("id", [flag, name]).pipe(
    Effect.map(({ stdout }) => Number(stdout.trim())),
    Effect.filterOrFail((id) => Number.isSafeInteger(id) && id > 0)
  )

/** The account of that name, if there is one and we are allowed to become it. */
const lookUp = (name: string) =>
  Effect.all({ uid: numericId("-u", name), gid: numericId("-g", name) }).pipe(
    Effect.tap((account) => execute("id", ["-u"], Maybe.some(account)))
  )

const create = execute("useradd", ["--system", "--no-create-home", "--shell", "/usr/sbin/nologin", dedicated])

/** The unprivileged account to run the server as; none when we are not root. */
export const unprivileged: Effect.Effect<Account, EmbeddedPostgresUnavailable> = Effect.suspend(() => {
  if (process.getuid === undefined) {
    return new EmbeddedPostgresUnavailable({
      reason: "UnsupportedPlatform",
      message: `The embedded PostgreSQL needs a POSIX system, which ${process.platform} is not.`
    })
  }
  if (process.getuid() !== 0) return Effect.succeedNone
  return Effect.firstSuccessOf([...customary, dedicated].map(lookUp)).pipe(
    Effect.orElse(() => Effect.zipRight(create, lookUp(dedicated))),
    Effect.asSome,
    Effect.mapError(
      () =>
        new EmbeddedPostgresUnavailable({
          reason: "NoAccount",
          message:
            "PostgreSQL refuses to run as root, and no account to run it as was found or could be made. " +
            "Run as an ordinary user, or make one: useradd --system effect-awa"
        })
    )
  )
})
