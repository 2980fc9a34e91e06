/** Readers of result columns. A wrong type is a defect: the statement and its reader are written together. */
const fail = (expected: string, value: unknown): never => {
  throw new TypeError(`expected ${expected} from the database, got ${value === null ? "null" : typeof value}`)
}

/** @internal */
export type Row = ReadonlyArray<unknown>

/** @internal */
export const bigint = (value: unknown): bigint => (typeof value === "bigint" ? value : fail("bigint", value))

/** @internal */
export const number = (value: unknown): number => (typeof value === "number" ? value : fail("number", value))

/** @internal */
export const string = (value: unknown): string => (typeof value === "string" ? value : fail("text", value))

/** @internal */
export const boolean = (value: unknown): boolean => (typeof value === "boolean" ? value : fail("boolean", value))

/** @internal */
export const nullable =
  <A>(read: (value: unknown) => A) =>
  (value: unknown): A | undefined =>
    value === null || value === undefined ? undefined : read(value)
