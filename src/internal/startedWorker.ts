import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import * as FiberRef from "effect/FiberRef"
import type { WorkerCrashed } from "./workerSupervisor.js"

/** @internal What whoever launches a program must know of its worker as soon as it claims: the rest may still be starting. */
export interface Started {
  readonly shutdownDeadline: Duration.Duration
  readonly join: Effect.Effect<never, WorkerCrashed>
}

/** @internal Is told of a worker that begins to claim. */
export const startedWorker: FiberRef.FiberRef<(started: Started) => void> = FiberRef.unsafeMake<
  (started: Started) => void
>(() => {})
