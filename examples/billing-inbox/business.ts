/**
 * The business: an invoice is charged, and the ledger, the invoice and the follow-up job change in the same commit as
 * the job's completion. This is the file to copy; everything else in this folder tries to break it.
 */
import { SqlClient } from "@effect/sql/SqlClient"
import { Effect, Schema } from "effect"
import { Job } from "effect-awa"
import { Payments, PaymentsUnavailable } from "./payments.js"

const Invoice = Schema.Struct({ invoiceId: Schema.Int, amountCents: Schema.Int })

export const Charge = Job.make("charge", { payload: Invoice, error: PaymentsUnavailable, queue: "billing" })

export const SendReceipt = Job.make("send-receipt", {
  payload: Schema.Struct({ invoiceId: Schema.Int }),
  queue: "mail"
})

/** What a charge means for our own data. Nothing here looks whether it was done before; no constraint would mind. */
export const book = (invoice: typeof Invoice.Type, chargeId: string, attempt: number) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient
    const { amountCents, invoiceId } = invoice
    yield* sql`insert into ledger (invoice_id, amount_cents, charge_id, attempt)
               values (${invoiceId}, ${amountCents}, ${chargeId}, ${attempt})`
    yield* sql`update invoices set state = 'paid' where id = ${invoiceId}`
    yield* SendReceipt.enqueue({ invoiceId })
  })

/** Charges through the slow provider with no transaction open, then commits `book` and the job's completion as one. */
export const ChargeLive = Charge.toLayerCallerOwned((job) =>
  Effect.gen(function* () {
    const payments = yield* Payments
    const chargeId = yield* payments.charge(job.payload, job.idempotencyKey)
    return yield* job.finalize(book(job.payload, chargeId, job.attempt))
  })
)

/** An ordinary handler: it may run twice, and this one may. */
export const SendReceiptLive = SendReceipt.toLayer((job) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient
    yield* sql`update invoices set receipt_sent = true where id = ${job.payload.invoiceId}`
  })
)
