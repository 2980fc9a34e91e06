/** @internal The package's version; a test compares it with package.json. */
export const libraryVersion = "0.0.0"

/** @internal The version of the contract between schema and runtimes that this library speaks (C-62). */
export const contractVersion = 1
