/** @internal The package's version, as text that every bundler keeps; a test compares it with package.json. */
export const version = "0.0.0"
