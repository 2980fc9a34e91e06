/** @internal The version of the contract between schema and runtimes that this library speaks (C-62). */
export const contractVersion = 1
/** @internal The oldest schema version whose functions this library can call (C-62). */
export const minimumSchemaVersion = 5
