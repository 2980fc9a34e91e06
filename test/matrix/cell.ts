/**
 * The cell that the tests run in, as `npm run test:matrix` says it in the environment. Without it: whatever the server has, and
 * the schema's usual name. A test belongs to the matrix when its name ends with `[matrix]`; then nothing in it may depend on the
 * schema's name, on the server's own zone or isolation, or on what stands between it and the server.
 */
const given = (name: string): string | undefined => {
  const value = process.env[name]
  return value === undefined || value === "" ? undefined : value
}

const isolation = given("AWA_TEST_ISOLATION")
const zone = given("AWA_TEST_TIME_ZONE")

export const cell = {
  major: given("AWA_TEST_MAJOR"),
  schema: given("AWA_TEST_SCHEMA") ?? "awa",
  zone,
  isolation: isolation ?? "read committed",
  /** Of the test's database, so that every session has them that does not say otherwise itself. */
  settings: {
    ...(zone === undefined ? {} : { TimeZone: zone }),
    ...(isolation === undefined ? {} : { default_transaction_isolation: isolation })
  }
} as const

/** Whether a transaction that begins without a word about it sees one snapshot from its first statement to its end. */
export const keepsSnapshot = cell.isolation !== "read committed"
