import * as Predicate from "effect/Predicate"

/** @internal */
export interface Definition {
  readonly kind: string
  readonly schema: Readonly<Record<string, unknown>>
  readonly queue?: string | undefined
  readonly priority?: number | undefined
  readonly maxAttempts?: number | undefined
}

/** @internal What a language needs to know of a value. What it cannot say in its types is `any`. */
export type Shape =
  | { readonly is: "string" | "integer" | "number" | "boolean" | "any" }
  | { readonly is: "literals"; readonly values: ReadonlyArray<string> }
  | { readonly is: "list" | "map" | "nullable"; readonly of: Shape }
  | { readonly is: "struct"; readonly name: string }

/** @internal */
export interface Struct {
  readonly name: string
  readonly fields: ReadonlyArray<{ readonly key: string; readonly shape: Shape; readonly required: boolean }>
}

/** @internal */
export interface Model {
  readonly structs: ReadonlyArray<Struct>
  readonly kinds: ReadonlyArray<{ readonly definition: Definition; readonly name: string; readonly args: Shape }>
}

/** @internal Words of a name, each with a capital: a name of a type in either language. */
export const pascal = (text: string): string => {
  const words = text.split(/[^A-Za-z0-9]+/).filter((word) => word !== "")
  const joined = words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join("")
  return /^[A-Z]/.test(joined) ? joined : `K${joined}`
}

/** @internal The name, or with a number behind it when it was taken. */
export const fresh = (taken: Set<string>, name: string): string => {
  let found = name
  for (let n = 2; taken.has(found); n++) found = `${name}${n}`
  taken.add(found)
  return found
}

const any: Shape = { is: "any" }

const record = (value: unknown): Readonly<Record<string, unknown>> => (Predicate.isReadonlyRecord(value) ? value : {})

const list = (value: unknown): ReadonlyArray<unknown> => (Array.isArray(value) ? value : [])

const texts = (value: unknown): ReadonlyArray<string> => list(value).filter(Predicate.isString)

/** A key that both languages can name beside a field. */
const isPlainKey = (key: string): boolean => /^[A-Za-z0-9_.$@/ -]{1,100}$/.test(key)

class Builder {
  readonly structs: Array<Struct> = []
  readonly taken: Set<string> = new Set()
  /** The definitions of the kind at hand that are structs, by their names there. */
  private named: Map<string, Shape> = new Map()

  args(definition: Definition, name: string): Shape {
    this.named = new Map()
    return this.shape(definition.schema, `${name}Args`, name, record(definition.schema["$defs"]), [])
  }

  private shape(
    schema: unknown,
    name: string,
    prefix: string,
    defs: Readonly<Record<string, unknown>>,
    open: ReadonlyArray<string>
  ): Shape {
    const node = record(schema)
    const into = (inner: unknown, step: string) => this.shape(inner, name + pascal(step), prefix, defs, open)
    const ref = node["$ref"]
    if (typeof ref === "string") {
      const key = ref.slice("#/$defs/".length).replaceAll("~1", "/").replaceAll("~0", "~")
      const known = this.named.get(key)
      if (known !== undefined) return known
      if (open.includes(key)) return any
      const target = record(defs[key])
      if (!isStruct(target)) return this.shape(target, name, prefix, defs, [...open, key])
      const struct = this.declare(prefix + pascal(key.replace(/EncodedBound$/, ""))) // as Effect names the encoded side
      this.named.set(key, struct) // before its fields, which may name it
      this.fields(struct.name, target, prefix, defs, open)
      return struct
    }
    if (Array.isArray(node["anyOf"])) {
      const others = list(node["anyOf"]).filter((one) => record(one)["type"] !== "null")
      const [only] = others
      const of = others.length === 1 ? this.shape(only, name, prefix, defs, open) : any
      return of.is === "any" || others.length === list(node["anyOf"]).length ? of : { is: "nullable", of }
    }
    const values = texts(node["enum"])
    if (values.length > 0 && values.length === list(node["enum"]).length) return { is: "literals", values }
    switch (node["type"]) {
      case "string":
      case "integer":
      case "number":
      case "boolean":
        return { is: node["type"] }
      case "array":
        return { is: "list", of: Predicate.isReadonlyRecord(node["items"]) ? into(node["items"], "item") : any }
      case "object": {
        if (!isStruct(node)) {
          const values = node["additionalProperties"]
          return { is: "map", of: Predicate.isReadonlyRecord(values) ? into(values, "value") : any }
        }
        const struct = this.declare(name)
        this.fields(struct.name, node, prefix, defs, open)
        return struct
      }
      default:
        return any
    }
  }

  private declare(name: string): Extract<Shape, { readonly is: "struct" }> {
    return { is: "struct", name: fresh(this.taken, name) }
  }

  private fields(
    name: string,
    node: Readonly<Record<string, unknown>>,
    prefix: string,
    defs: Readonly<Record<string, unknown>>,
    open: ReadonlyArray<string>
  ): void {
    const required = texts(node["required"])
    const fields = Object.entries(record(node["properties"])).map(([key, inner]) => ({
      key,
      shape: this.shape(inner, name + pascal(key), prefix, defs, open),
      required: required.includes(key)
    }))
    // what must be given first: Python wants no field without a default behind one that has it
    this.structs.push({ name, fields: [...fields.filter((f) => f.required), ...fields.filter((f) => !f.required)] })
  }
}

const isStruct = (node: Readonly<Record<string, unknown>>): boolean => {
  const keys = Object.keys(record(node["properties"]))
  return node["type"] === "object" && keys.length > 0 && keys.every(isPlainKey)
}

/** @internal The types that a set of kinds needs; every name begins with its kind's. */
export const modelOf = (definitions: ReadonlyArray<Definition>): Model => {
  const builder = new Builder()
  const taken = new Set<string>()
  const named = definitions.map((definition) => ({ definition, name: fresh(taken, pascal(definition.kind)) }))
  // what the stubs call something else
  for (const { name } of named) builder.taken.add(`Enqueue${name}`).add(`Handle${name}`)
  const kinds = named.map((kind) => ({ ...kind, args: builder.args(kind.definition, kind.name) }))
  return { structs: builder.structs, kinds }
}

/** @internal What the definition says of its jobs, as `opts`. */
export const defaultsOf = ({ maxAttempts, priority }: Definition): Readonly<Record<string, number>> => ({
  ...(priority === undefined ? {} : { priority }),
  ...(maxAttempts === undefined ? {} : { max_attempts: maxAttempts })
})
