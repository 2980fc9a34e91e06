import type { Found } from "./finding.js"
import { checkBindings, checkOwners, checkRelations } from "./objects.js"
import { checkPrivileges } from "./privileges.js"
import { checkRoleGraph } from "./roleGraph.js"
import { checkRoutines } from "./routines.js"
import type { Check, Subject } from "./subject.js"

const checks: ReadonlyArray<Check> = [
  checkRoutines,
  checkRelations,
  checkOwners,
  checkBindings,
  checkPrivileges,
  checkRoleGraph
]

/** What is created again is given its privileges with it: they are no findings of their own. */
const withoutConsequences = (found: ReadonlyArray<Found>): ReadonlyArray<Found> => {
  const again = new Set(found.filter(({ code }) => code === "routine-signature").map(({ object }) => object))
  return found.filter(({ code, object }) => !(/^routine-(acl|public)$/.test(code) && again.has(object)))
}

/** What another version of the library may have made otherwise. */
const ofOneVersion =
  /^routine-(missing|signature|overload|unexpected|security|language|search-path|settings|attributes|body|acl)$|^relation-(missing|unexpected|acl|trigger)$/

/**
 * The contract's core: what stands in the catalogs of an installation, and who can become whom (C-53). What another version
 * installed is not compared with this one: what would mend it would be half an upgrade, or half a downgrade.
 *
 * @internal
 */
export const ofCatalogs = (subject: Subject, isThisVersion: boolean): ReadonlyArray<Found> =>
  withoutConsequences(checks.flatMap((check) => check(subject))).filter(
    ({ code }) => isThisVersion || !ofOneVersion.test(code)
  )
