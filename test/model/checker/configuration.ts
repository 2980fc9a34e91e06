/** What is checked: a model within bounds, and what the checker must find. */

/** A module with its constants, and what is to be true of it. */
export interface Configuration {
  readonly name: string
  /** The folder and the module that begins and goes on. */
  readonly folder: string
  readonly module: string
  /** `FairSpec` for what must happen in the end; `Spec` unless said otherwise. */
  readonly specification?: string
  readonly constants: Readonly<Record<string, string>>
  readonly invariants?: ReadonlyArray<string>
  readonly properties?: ReadonlyArray<string>
  /** What a state must satisfy to be looked at any further. */
  readonly constraint?: string
  /** The invariant or property that a broken twin must violate, before any other; a model without it must hold. */
  readonly violates?: string
  /** How many distinct states a model that holds has: fewer or more is another model than the one that is documented. */
  readonly states?: number
  /** Whether it belongs to the short form. */
  readonly short?: boolean
}

/** TLC's own file for a configuration. */
export const configurationText = ({
  constants,
  constraint,
  invariants = [],
  properties = [],
  specification = "Spec"
}: Configuration): string =>
  [
    `SPECIFICATION ${specification}`,
    "CONSTANTS",
    ...Object.entries(constants).map(([name, value]) => `  ${name} = ${value}`),
    ...(invariants.length === 0 ? [] : [`INVARIANTS ${invariants.join(" ")}`]),
    ...(properties.length === 0 ? [] : [`PROPERTIES ${properties.join(" ")}`]),
    ...(constraint === undefined ? [] : [`CONSTRAINT ${constraint}`]),
    ""
  ].join("\n")
