import { Schema } from "effect"
import { Job } from "effect-awa"

const payload = Schema.Struct({ tag: Schema.String })

/** Completed by the runtime. */
export const Work = Job.make("work", { payload })
/** Completed by its handler, together with its row. */
export const Pay = Job.make("pay", { payload })

/** What a process is told by its environment. */
export const Settings = Schema.parseJson(
  Schema.Struct({
    does: Schema.Literal("work", "migrate"),
    generation: Schema.String,
    name: Schema.String,
    database: Schema.String
  })
)

/** How long an attempt may be without a heartbeat, in milliseconds. */
export const staleness = 3_000
