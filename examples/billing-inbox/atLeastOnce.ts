/**
 * How it is done without caller-owned completion: the handler commits first, and the runtime reports the job's end
 * later. The business SQL is the same. Between the two fits a crash, a lost answer, a rescue: the job runs again.
 */
import { SqlClient } from "@effect/sql/SqlClient"
import { Effect } from "effect"
import { book, Charge } from "./business.js"
import { Payments } from "./payments.js"

export const ChargeAtLeastOnce = Charge.toLayer((job) =>
  Effect.gen(function* () {
    const payments = yield* Payments
    const sql = yield* SqlClient
    const chargeId = yield* payments.charge(job.payload, job.idempotencyKey)
    yield* sql.withTransaction(book(job.payload, chargeId, job.attempt))
  })
)
