/**
 * The application's side of the payment provider: a service, and its implementation over HTTP.
 */
import { FetchHttpClient, HttpClient, HttpClientRequest, HttpClientResponse } from "@effect/platform"
import { Config, Context, Effect, Layer, Schema } from "effect"

export class ChargeRequest extends Schema.Class<ChargeRequest>("ChargeRequest")({
  invoiceId: Schema.Int,
  amountCents: Schema.Int
}) {}

export class ChargeResponse extends Schema.Class<ChargeResponse>("ChargeResponse")({ chargeId: Schema.String }) {}

/** The header by which the provider knows a repeated request. */
export const IdempotencyKey = Schema.Struct({ "idempotency-key": Schema.String })

export class PaymentsUnavailable extends Schema.TaggedError<PaymentsUnavailable>()("PaymentsUnavailable", {
  reason: Schema.String
}) {}

export class Payments extends Context.Tag("billing-inbox/Payments")<
  Payments,
  {
    /** Charges once per key, however often it is asked, and answers with the id of that charge. */
    readonly charge: (
      invoice: typeof ChargeRequest.Encoded,
      idempotencyKey: string
    ) => Effect.Effect<string, PaymentsUnavailable>
  }
>() {}

export const PaymentsLive = Layer.effect(
  Payments,
  Effect.gen(function* () {
    const url = yield* Config.string("PAYMENTS_URL")
    const client = (yield* HttpClient.HttpClient).pipe(
      HttpClient.filterStatusOk,
      HttpClient.mapRequest(HttpClientRequest.prependUrl(url))
    )
    const withBody = HttpClientRequest.schemaBodyJson(ChargeRequest)
    return Payments.of({
      charge: (invoice, idempotencyKey) =>
        HttpClientRequest.post("/charges").pipe(
          HttpClientRequest.setHeader("idempotency-key", idempotencyKey),
          withBody(ChargeRequest.make(invoice)),
          Effect.flatMap(client.execute),
          Effect.flatMap(HttpClientResponse.schemaBodyJson(ChargeResponse)),
          Effect.mapBoth({
            onSuccess: ({ chargeId }) => chargeId,
            onFailure: (error) => new PaymentsUnavailable({ reason: error._tag })
          })
        )
    })
  })
).pipe(Layer.provide(FetchHttpClient.layer))
