import * as Effect from "effect/Effect"
import type { RegisteredHandler } from "../Handlers.js"
import type { AnyJob, HandlesOf } from "../Worker.js"

/** @internal The handlers of these jobs: each kind that is listed must have one. */
export const listedHandlers = <const Jobs extends ReadonlyArray<AnyJob>>(
  jobs: Jobs
): Effect.Effect<ReadonlyArray<RegisteredHandler>, never, HandlesOf<Jobs>> =>
  // eslint-disable-next-line @typescript-eslint/consistent-type-assertions -- the union of the elements' requirements is lost in the array's element type
  Effect.forEach(jobs, (job) => job.handler) as Effect.Effect<ReadonlyArray<RegisteredHandler>, never, HandlesOf<Jobs>>
