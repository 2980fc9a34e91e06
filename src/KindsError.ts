/**
 * What sharing kinds with other languages can fail with.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * The payload of a kind has no JSON Schema, or a kind is defined twice.
 *
 * @since 0.1.0
 * @category errors
 */
export class KindNotExportable extends Schema.TaggedError<KindNotExportable>("effect-awa/KindNotExportable")(
  "KindNotExportable",
  { kind: Schema.String, reason: Schema.String }
) {
  override get message(): string {
    return `kind ${JSON.stringify(this.kind)}: ${this.reason}`
  }
}

/**
 * A module or a folder does not hold kinds, or cannot be read or written.
 *
 * @since 0.1.0
 * @category errors
 */
export class InvalidKinds extends Schema.TaggedError<InvalidKinds>("effect-awa/InvalidKinds")("InvalidKinds", {
  path: Schema.String,
  reason: Schema.String
}) {
  override get message(): string {
    return `${this.path}: ${this.reason}`
  }
}
