import * as Either from "effect/Either"
import { ForeignSchema, RingSizeFixed, SchemaTooNew } from "../MigrationError.js"
import { contractVersion } from "./contractVersion.js"

/** @internal What stands in the database under the schema's name. */
export type Found =
  | { readonly _tag: "Absent" }
  | { readonly _tag: "Empty" }
  | { readonly _tag: "Foreign"; readonly found: string }
  | {
      readonly _tag: "Installed"
      readonly version: number
      readonly minimumContract: number
      readonly ring: number
      readonly renderedHash: string
      /** Of the functions; higher with every release that changes them. */
      readonly revision: number
    }

/** @internal What is to be done about it. */
export type Plan =
  | { readonly _tag: "Install"; readonly createSchema: boolean; readonly ring: number }
  | { readonly _tag: "Upgrade"; readonly from: number; readonly ring: number }
  | { readonly _tag: "Refresh"; readonly ring: number }
  | { readonly _tag: "Nothing"; readonly version: number; readonly ring: number; readonly newer: boolean }

/** @internal What this library brings, and what it was asked for. */
export interface Wanted {
  readonly schema: string
  /** Undefined: whatever is installed, or the default. */
  readonly ring: number | undefined
  readonly version: number
  readonly hash: (ring: number) => string
  readonly revision: number
}

/** @internal */
export const defaultRing = 16

/**
 * The version rules of C-62. Everything that writes is decided here, from values alone.
 *
 * @internal
 */
export const makePlan = (
  found: Found,
  wanted: Wanted
): Either.Either<Plan, ForeignSchema | SchemaTooNew | RingSizeFixed> => {
  const { schema } = wanted
  switch (found._tag) {
    case "Absent":
    case "Empty":
      return Either.right({
        _tag: "Install",
        createSchema: found._tag === "Absent",
        ring: wanted.ring ?? defaultRing
      })
    case "Foreign":
      return Either.left(new ForeignSchema({ schema, found: found.found }))
    case "Installed": {
      const { minimumContract, revision, ring, version } = found
      if (minimumContract > contractVersion) {
        return Either.left(
          new SchemaTooNew({ schema, installedVersion: version, minimumContract, contract: contractVersion })
        )
      }
      if (wanted.ring !== undefined && wanted.ring !== ring) {
        return Either.left(new RingSizeFixed({ schema, installed: ring, requested: wanted.ring }))
      }
      if (version > wanted.version) return Either.right({ _tag: "Nothing", version, ring, newer: true })
      if (version < wanted.version) return Either.right({ _tag: "Upgrade", from: version, ring })
      if (found.renderedHash === wanted.hash(ring))
        return Either.right({ _tag: "Nothing", version, ring, newer: false })
      // while a deployment rolls, processes of both releases start: the newer one's functions stay
      return Either.right(
        revision > wanted.revision ? { _tag: "Nothing", version, ring, newer: true } : { _tag: "Refresh", ring }
      )
    }
  }
}
