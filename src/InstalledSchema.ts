/**
 * Where effect-awa is installed.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"

/**
 * The schema that effect-awa is installed in, for programs that enqueue: `awa` unless provided. A worker provides its own
 * to its handlers.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { InstalledSchema } from "effect-awa"
 *
 * export const inTenant = Effect.provideService(InstalledSchema.InstalledSchema, "tenant_7")
 * ```
 *
 * @since 0.1.0
 * @category references
 */
export class InstalledSchema extends Context.Reference<InstalledSchema>()("effect-awa/InstalledSchema", {
  defaultValue: (): string => "awa"
}) {}
