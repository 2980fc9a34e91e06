import type { ApplicationPoolOptions } from "../ApplicationPool.js"
import type { RuntimePoolOptions } from "../RuntimePool.js"
import { urlFault } from "./connectionUrl.js"
import { schemaFault } from "./names.js"
import { atMostADay, countFault, durationFault, firstFault, type OptionFault, textFault } from "./optionRules.js"

const maxConnections = { least: 1, most: 10_000 }

/** @internal The rule that an option of the runtime's pool breaks. */
export const runtimePoolFault = (options: RuntimePoolOptions): OptionFault | undefined =>
  firstFault({
    schema: schemaFault(options.schema ?? "awa"),
    url: urlFault(options.url),
    listenUrl: options.listenUrl === undefined ? undefined : urlFault(options.listenUrl),
    maxConnections: countFault(options.maxConnections, maxConnections),
    connectTimeout: durationFault(options.connectTimeout, atMostADay),
    applicationName: textFault(options.applicationName)
  })

const fromOne = { least: 1, most: Number.POSITIVE_INFINITY }

/** @internal The rule that an option of the application's pool breaks. */
export const applicationPoolFault = (options: ApplicationPoolOptions | undefined): OptionFault | undefined =>
  firstFault({
    callerOwned: countFault(options?.callerOwned, fromOne),
    "budget.processes": countFault(options?.budget?.processes, fromOne),
    "budget.applicationConnections": countFault(options?.budget?.applicationConnections, maxConnections),
    maximumDuration: durationFault(options?.maximumDuration, atMostADay)
  })
