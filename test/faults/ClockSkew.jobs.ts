import { Schema } from "effect"
import * as Job from "effect-awa/Job"

const payload = Schema.Struct({ tag: Schema.String })

export const Timed = Job.make("timed", { payload })
export const Later = Job.make("later", { payload })
export const Hang = Job.make("hang", { payload })
export const Overdue = Job.make("overdue", { payload, queue: "overdue" })
