/** @internal */
export interface RenderOptions {
  readonly schema: string
  readonly ring: number
}

/** @internal A double-quoted identifier. */
export const quoteIdentifier = (name: string): string => `"${name.replaceAll('"', '""')}"`

/** @internal A literal that means the same whatever `standard_conforming_strings` says. */
export const quoteLiteral = (text: string): string => {
  const doubled = text.replaceAll("'", "''")
  return doubled.includes("\\") ? `E'${doubled.replaceAll("\\", "\\\\")}'` : `'${doubled}'`
}

/** @internal The channel of an installation: a fixed length, so that any schema name fits the limit of 63 bytes. */
export const notifyChannel = (schema: string): string => {
  let hash = 0xcbf29ce484222325n
  for (const byte of new TextEncoder().encode(schema)) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n)
  }
  return `awa_${hash.toString(16).padStart(16, "0")}`
}

/** @internal The first part of an advisory lock's key: installations and purposes never meet. */
export const lockKeyPrefix = (schema: string, purpose: string): string => `effect-awa/${schema}/${purpose}/`

/** A dollar quote that the schema's own name cannot end. */
const dollarTag = (schema: string): string => {
  let tag = "$$"
  for (let n = 0; schema.includes(tag) || (n === 0 && schema.includes("$")); n++) {
    tag = `$awa${n}$`
    if (!schema.includes(tag)) break
  }
  return tag
}

const segments = /^[ \t]*\{\{#segments(?: ([a-z ]+))?\}\}\n([\s\S]*?)^[ \t]*\{\{\/segments\}\}(;?)\n/gm

/**
 * Renders a template of `schema/`: the same text for the same options, always, since the hash of what is installed is
 * compared with the hash of what would be.
 *
 * @internal
 */
export const renderSql = (
  template: string,
  options: RenderOptions,
  /** What further placeholders stand for. */
  values: Readonly<Record<string, string>> = {}
): string => {
  const { ring, schema } = options
  const quoted = quoteIdentifier(schema)
  const unfolded = template.replace(
    segments,
    (_, join: string | undefined, body: string, end: string) =>
      Array.from({ length: ring }, (_, segment) => body.replaceAll("{{segment}}", String(segment))).join(
        join === undefined ? "" : `${join}\n`
      ) + (end === "" ? "" : `${end}\n`)
  )
  const tag = dollarTag(schema)
  // In one pass: a schema's name may itself look like a placeholder.
  return unfolded.replace(/\$\$|\{\{([^{}]*)\}\}/g, (found, placeholder: string | undefined) => {
    if (placeholder === undefined) return tag
    const [name, argument] = placeholder.split(" ")
    switch (name) {
      case "schema":
        return quoted
      case "schema_name":
        return quoteLiteral(schema)
      case "channel":
        return quoteLiteral(notifyChannel(schema))
      case "ring":
        return String(ring)
      case "schema_text":
        return quoteLiteral(`${quoted}.${argument}`)
      case "key":
        return quoteLiteral(lockKeyPrefix(schema, String(argument)))
      default: {
        const value = values[placeholder]
        if (value === undefined) throw new Error(`schema/: unknown placeholder ${found}`)
        return value
      }
    }
  })
}
