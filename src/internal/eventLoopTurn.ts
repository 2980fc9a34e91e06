import * as Effect from "effect/Effect"

/** @internal Lets everything else that the event loop has to do come first. */
export const eventLoopTurn = Effect.async<void>((resume) => void setImmediate(() => resume(Effect.void)))
