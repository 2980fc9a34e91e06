import { manifest, unfold } from "./manifest.js"
import { quoteIdentifier, quoteLiteral, type RenderOptions, renderSql } from "./renderSql.js"
import { privilegesText } from "./schemaText.generated.js"

/** @internal One privilege that the manifest gives. */
export interface Wanted {
  readonly kind: "routine" | "relation" | "schema" | "type"
  readonly name: string
  readonly privilege: string
  /** A capability; `owner`: who owns the routines; `anybody`: who is bound; `contract`: to more than finalizing (C-52). */
  readonly holder: string
}

/** @internal */
export const wantedPrivileges = ({ ring }: RenderOptions): ReadonlyArray<Wanted> => [
  { kind: "schema", name: "", privilege: "usage", holder: "anybody" },
  { kind: "schema", name: "", privilege: "usage", holder: "owner" },
  { kind: "type", name: "", privilege: "usage", holder: "owner" },
  ...manifest.relations
    .flatMap((relation) => unfold(relation, ring))
    .flatMap(({ grants, name, owner }) => [
      ...owner.map((privilege): Wanted => ({ kind: "relation", name, privilege, holder: "owner" })),
      ...Object.entries(grants).flatMap(([holder, privileges]) =>
        privileges.map((privilege): Wanted => ({ kind: "relation", name, privilege, holder }))
      )
    ]),
  ...manifest.routines
    .filter((routine) => routine.class !== "internal" && routine.class !== "migrator")
    .flatMap((routine) => unfold(routine, ring))
    .map(({ arguments: types, class: holder, name }): Wanted => ({
      kind: "routine",
      name: `${name}(${types})`,
      privilege: "execute",
      holder
    }))
]

/** @internal `schema/privileges.sql`, with the manifest in it. */
export const exactPrivileges = (target: RenderOptions): string => {
  const rows = wantedPrivileges(target).map(({ holder, kind, name, privilege }) =>
    [kind, name, privilege.toUpperCase(), holder].map(quoteLiteral).join(", ")
  )
  return renderSql(privilegesText, target, { wanted_privileges: `(${rows.join("),\n      (")})` })
}

/** @internal The statement after which a role's privileges are those of another, until the transaction ends. */
export const actAs = (role: string): string => `set local role ${quoteIdentifier(role)};\n`
