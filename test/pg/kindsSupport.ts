/** Payloads as the database checks them. */
import { Effect } from "effect"
import { insertMany, json } from "./contractSupport.js"
import type { Session } from "./database.js"
import { column } from "./support.js"

export const validated = (session: Session, args: unknown, kind = "order") =>
  insertMany(session, [{ kind, queue: "q", args, opts: { validate: true } }])

/** The fault of each value, as the database sees it with so many steps to go. */
export const faults = (session: Session, schema: unknown, values: ReadonlyArray<unknown>, steps = 100_000) =>
  session
    .rows(
      `select (awa.value_fault(s.v, s.v -> '$defs', a.e, 'args', 0, 0, $3)).fault
       from (select $1::text::jsonb) s(v), jsonb_array_elements($2::text::jsonb) with ordinality a(e, ord) order by a.ord`,
      [json(schema), JSON.stringify(values), steps]
    )
    .pipe(Effect.map((rows) => column(rows, "fault")))

export const nest = (depth: number, inner: unknown, wrap: (inner: unknown) => unknown): unknown =>
  depth === 0 ? inner : nest(depth - 1, wrap(inner), wrap)
