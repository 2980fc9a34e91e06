import { applicationPoolFault, runtimePoolFault } from "../../src/internal/poolOptions.js"
import type { OptionFault } from "../../src/internal/optionRules.js"
import type { ApplicationPoolOptions } from "../../src/ApplicationPool.js"
import { PoolMisconfigured, type RuntimePoolOptions } from "../../src/RuntimePool.js"

/** The pools' names of what a worker's layer calls otherwise. */
const written: Readonly<Record<string, string>> = {
  url: "database",
  listenUrl: "listenDatabase",
  maxConnections: "runtimeConnections",
  maximumDuration: "applicationTransaction"
}

const asWritten = ({ option, rule }: OptionFault): PoolMisconfigured =>
  new PoolMisconfigured({ option: written[option] ?? option, rule })

/** @internal What the runtime's pool would refuse, in the words of the worker's layer. */
export const runtimeRefusal = (options: RuntimePoolOptions): PoolMisconfigured | undefined => {
  const fault = runtimePoolFault(options)
  return fault === undefined ? undefined : asWritten(fault)
}

/** @internal What the application's pool would refuse, once the runtime's is open, in the words of the worker's layer. */
export const applicationRefusal = (options: ApplicationPoolOptions): PoolMisconfigured | undefined => {
  const fault = applicationPoolFault(options)
  return fault === undefined ? undefined : asWritten(fault)
}
