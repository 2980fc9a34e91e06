/**
 * What tests of programs over effect-awa need: a database of their own, a worker, assertions, a provider, faults.
 *
 * @since 0.1.0
 */

/**
 * @since 0.1.0
 */
export * as Backends from "./testing/Backends.js"

/**
 * @since 0.1.0
 */
export * as ClockSkew from "./testing/ClockSkew.js"

/**
 * @since 0.1.0
 */
export * as FaultProxy from "./testing/FaultProxy.js"

/**
 * @since 0.1.0
 */
export * as HostileRole from "./testing/HostileRole.js"

/**
 * @since 0.1.0
 */
export * as Provider from "./testing/Provider.js"

/**
 * @since 0.1.0
 */
export * as ServerRestart from "./testing/ServerRestart.js"

/**
 * @since 0.1.0
 */
export * as TestDatabase from "./testing/TestDatabase.js"

/**
 * @since 0.1.0
 */
export * as Testing from "./testing/Testing.js"

/**
 * @since 0.1.0
 */
export * as WorkerProcess from "./testing/WorkerProcess.js"
