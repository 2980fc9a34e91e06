/** @internal The version of the contract between schema and runtimes that this library speaks (C-62). */
export const contractVersion = 1
