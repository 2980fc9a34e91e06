/** Existing suites run unchanged through a pooler: `npm run poolers` puts one between the tests and the server. */
import { inject } from "vitest"

declare module "vitest" {
  // The merged interface is vitest's.
  export interface ProvidedContext {
    /** The host and port of the pooler to lead through; undefined when there is none. */
    readonly pooler?: string
    /** Whether that pooler keeps a session for its client. */
    readonly poolMode?: "session" | "transaction"
  }
}

/** The url of the same database, through the pooler if there is one. */
export const throughPooler = (url: string): string => {
  const pooler = inject("pooler")
  if (pooler === undefined) return url
  const parsed = new URL(url)
  parsed.host = pooler
  return parsed.href
}
