import { createHash } from "node:crypto"

/** The roles that programs connect as in a test's database of the strict profile. */
export const strictRoles = { runtime: "awa_test_runtime", application: "awa_test_application" } as const

/** Known to whoever knows the superuser's url, and the same in every process. */
export const passwordOf = (url: string): string =>
  createHash("sha256").update(`effect-awa/testing ${url}`).digest("hex")
