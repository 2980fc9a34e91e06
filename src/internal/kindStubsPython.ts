import { defaultsOf, type Definition, fresh, modelOf, type Shape, type Struct } from "./kindModel.js"

const keywords = new Set(
  (
    "False None True and as assert async await break class continue def del elif else except finally for from global if " +
    "import in is lambda nonlocal not or pass raise return try while with yield dump load self cls"
  ).split(" ")
)

/** A name that Python takes, in its own writing. */
const snake = (text: string): string => {
  const words = text
    .replaceAll(/([a-z0-9])([A-Z])/g, "$1_$2")
    .split(/[^A-Za-z0-9_]+/)
    .filter((word) => word !== "")
  const name = words.join("_").toLowerCase()
  if (name === "" || /^[0-9]/.test(name)) return `k_${name}`
  return keywords.has(name) ? `${name}_` : name
}

/** JSON's texts are Python's as well. */
const literal = (text: string): string => JSON.stringify(text)

const dictionary = (members: Readonly<Record<string, number>>): string =>
  `{${Object.entries(members)
    .map(([key, value]) => `${literal(key)}: ${value}`)
    .join(", ")}}`

const typeOf = (shape: Shape): string => {
  switch (shape.is) {
    case "string":
      return "str"
    case "integer":
      return "int"
    case "number":
      return "float"
    case "boolean":
      return "bool"
    case "any":
      return "Any"
    case "literals":
      return `Literal[${shape.values.map(literal).join(", ")}]`
    case "list":
      return `list[${typeOf(shape.of)}]`
    case "map":
      return `dict[str, ${typeOf(shape.of)}]`
    case "nullable":
      return `${typeOf(shape.of)} | None`
    case "struct":
      return shape.name
  }
}

const structIn = (shape: Shape): ReadonlyArray<string> =>
  shape.is === "struct" ? [shape.name] : "of" in shape ? structIn(shape.of) : []

const holdsStruct = (shape: Shape): boolean => structIn(shape).length > 0

/** An expression that is the JSON value of `value`, or the typed value of JSON. */
const convert = (shape: Shape, value: string, to: "dump" | "load", depth = 0): string => {
  if (!holdsStruct(shape)) return value
  const inner = `v${depth}`
  switch (shape.is) {
    case "struct":
      return to === "dump" ? `${value}.dump()` : `${shape.name}.load(${value})`
    case "nullable":
      return `None if ${value} is None else ${convert(shape.of, value, to, depth)}`
    case "list":
      return `[${convert(shape.of, inner, to, depth + 1)} for ${inner} in ${value}]`
    case "map":
      return `{k${depth}: ${convert(shape.of, inner, to, depth + 1)} for k${depth}, ${inner} in ${value}.items()}`
    default:
      return value
  }
}

const struct = ({ fields, name }: Struct): string => {
  const taken = new Set<string>()
  const named = fields.map((field) => ({ ...field, name: fresh(taken, snake(field.key)) }))
  const required = named.filter((field) => field.required)
  const optional = named.filter((field) => !field.required)
  const load = named.map(({ key, name, required, shape }) => {
    const value = required ? `data[${literal(key)}]` : `data.get(${literal(key)})`
    return `            ${name}=${convert(required || shape.is === "nullable" ? shape : { is: "nullable", of: shape }, value, "load")},\n`
  })
  return (
    `@dataclass(frozen=True, kw_only=True)\nclass ${name}:\n` +
    required.map(({ name, shape }) => `    ${name}: ${typeOf(shape)}\n`).join("") +
    optional
      .map(
        ({ name, shape }) =>
          `    ${name}: ${typeOf(shape)}${shape.is === "nullable" ? "" : " | None"} = None  # left out\n`
      )
      .join("") +
    `\n    def dump(self) -> dict[str, Any]:\n        out: dict[str, Any] = {\n` +
    required
      .map(({ key, name, shape }) => `            ${literal(key)}: ${convert(shape, `self.${name}`, "dump")},\n`)
      .join("") +
    "        }\n" +
    optional
      .map(
        ({ key, name, shape }) =>
          `        if self.${name} is not None:\n            out[${literal(key)}] = ${convert(shape, `self.${name}`, "dump")}\n`
      )
      .join("") +
    `        return out\n\n    @classmethod\n    def load(cls, data: dict[str, Any]) -> ${name}:\n        return cls(\n` +
    load.join("") +
    "        )\n"
  )
}

/** A schema's name inside a statement whose placeholders begin with a per cent sign, inside a text of Python. */
const statement = (sql: string, schema: string): string =>
  literal(sql.replace("{schema}", () => schema.replaceAll("%", "%%")))

/** @internal A module with payloads and producers, and one with handlers to be filled in. */
export const pythonStubs = (definitions: ReadonlyArray<Definition>, schema: string) => {
  const { kinds, structs } = modelOf(definitions)
  const taken = new Set<string>()
  const named = kinds.map((kind) => ({ ...kind, function: fresh(taken, snake(kind.definition.kind)) }))
  const used = [...new Set(kinds.flatMap(({ args }) => structIn(args)))]
  const producer =
    `"""Payloads and producers of this application's kinds. Written by \`awa kinds stubs\`, over what is here."""\n` +
    "from __future__ import annotations\n\nimport json\nfrom dataclasses import dataclass\nfrom typing import Any, Literal\n\n" +
    "from psycopg import Connection\nfrom psycopg.rows import tuple_row\n\n\n" +
    structs.map((one) => `${struct(one)}\n\n`).join("") +
    "def _enqueue(tx: Connection[Any], kind: str, args: Any, queue: str, opts: dict[str, Any]) -> int:\n" +
    "    with tx.cursor(row_factory=tuple_row) as cursor:\n" +
    `        cursor.execute(${statement("select {schema}.insert_job(%s, %s::jsonb, %s, %s::jsonb)", schema)},\n` +
    "                       (kind, json.dumps(args, allow_nan=False), queue, json.dumps(opts)))\n" +
    "        row = cursor.fetchone()\n        assert row is not None\n        return int(row[0])\n" +
    named
      .map(({ args, definition, function: name }) => {
        const [queue, defaults] = [literal(definition.queue ?? "default"), dictionary(defaultsOf(definition))]
        return (
          `\n\ndef enqueue_${name}(tx: Connection[Any], args: ${typeOf(args)}, *, queue: str = ${queue}, **opts: Any) -> int:\n` +
          `    """Enqueues in the transaction of \`tx\`. \`validate=True\` has the database look at the payload."""\n` +
          `    return _enqueue(tx, ${literal(definition.kind)}, ${convert(args, "args", "dump")}, queue, ${defaults} | opts)\n`
        )
      })
      .join("")
  const worker =
    `"""Handlers of this application's kinds, to be filled in. Written once by \`awa kinds stubs\`."""\n` +
    "from __future__ import annotations\n\nfrom typing import Any\n\nimport psycopg\n\n" +
    (used.length === 0 ? "" : `from awa_producer import ${used.join(", ")}\n\n`) +
    `COMPLETE = ${statement(
      "select {schema}.complete_job(%(job_id)s, %(run_lease)s, %(claim_slot)s, %(receipt_id)s, %(batch_id)s, %(batch_index)s)",
      schema
    )}\n` +
    named
      .map(
        ({ args, function: name }) =>
          `\n\ndef handle_${name}(url: str, job: dict[str, Any]) -> None:\n` +
          `    args = ${convert(args, 'job["args"]', "load")}\n` +
          "    with psycopg.connect(url) as tx:\n" +
          "        # your own SQL by `tx` comes here, with `args`: it commits with the completion, or not at all\n" +
          "        tx.execute(COMPLETE, job)\n"
      )
      .join("") +
    `\n\nHANDLERS = {\n${named.map(({ definition, function: name }) => `    ${literal(definition.kind)}: handle_${name},\n`).join("")}}\n`
  return { producer: { name: "awa_producer.py", text: producer }, worker: { name: "awa_worker.py", text: worker } }
}
