/**
 * What tests of programs over effect-awa need: a database of their own, a worker, assertions, a provider, faults.
 *
 * @since 0.1.0
 */

/**
 * @since 0.1.0
 */
export * as FaultProxy from "./testing/FaultProxy.js"

/**
 * @since 0.1.0
 */
export * as Provider from "./testing/Provider.js"

/**
 * @since 0.1.0
 */
export * as TestDatabase from "./testing/TestDatabase.js"

/**
 * @since 0.1.0
 */
export * as Testing from "./testing/Testing.js"
