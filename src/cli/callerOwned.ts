import * as Args from "@effect/cli/Args"
import * as Command from "@effect/cli/Command"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Admin from "../Admin.js"
import { PoolMisconfigured } from "../PoolError.js"
import * as RuntimePool from "../RuntimePool.js"
import { databaseUrl, schema, urlOf, urlRule } from "./options.js"

const queue = Args.text({ name: "queue" }).pipe(Args.withDescription("The queue's name."))

interface Given {
  readonly databaseUrl: Parameters<typeof urlOf>[0]
  readonly schema: string
}

const adminOf = (given: Given) =>
  Layer.unwrapEffect(
    urlOf(given.databaseUrl).pipe(
      Effect.mapBoth({
        onFailure: () => new PoolMisconfigured({ option: "url", rule: urlRule }),
        onSuccess: (url) =>
          Layer.provide(
            Admin.layer(),
            RuntimePool.layer({ url, schema: given.schema, maxConnections: 1, applicationName: "awa caller-owned" })
          )
      })
    )
  )

const enable = Command.make("enable", { databaseUrl, schema, queue }, (given) =>
  Effect.flatMap(Admin.Admin, (admin) => admin.enableCallerOwned(given.queue)).pipe(
    Effect.flatMap((moved) =>
      Console.log(
        `Caller-owned completion is enabled for the queue ${given.queue}; ${moved} jobs that were put aside go on.`
      )
    ),
    Effect.provide(adminOf(given))
  )
).pipe(
  Command.withDescription(
    "Once every live worker of the queue can take part; refused, with the names of those that cannot."
  )
)

const disable = Command.make("disable", { databaseUrl, schema, queue }, (given) =>
  Effect.flatMap(Admin.Admin, (admin) => admin.disableCallerOwned(given.queue)).pipe(
    Effect.flatMap((changed) =>
      Console.log(
        changed
          ? `Caller-owned completion is disabled for the queue ${given.queue}: its caller-owned jobs are put aside.`
          : `Caller-owned completion was disabled for the queue ${given.queue} before.`
      )
    ),
    Effect.provide(adminOf(given))
  )
).pipe(
  Command.withDescription(
    "Before workers are started that cannot take part: such jobs are put aside, and nothing is lost."
  )
)

/** @internal */
export const callerOwned = Command.make("caller-owned").pipe(
  Command.withDescription(
    "Say for which queues jobs may be completed in the application's transaction (rolling upgrades)."
  ),
  Command.withSubcommands([enable, disable])
)
