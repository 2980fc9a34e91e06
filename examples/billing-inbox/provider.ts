/**
 * A fake payment provider: slow, and idempotent by key, as real ones are.
 */
import { createServer } from "node:http"
import { HttpRouter, HttpServer, HttpServerRequest, HttpServerResponse } from "@effect/platform"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Effect, Utils } from "effect"
import { ChargeRequest, ChargeResponse, IdempotencyKey } from "./payments.js"

const fastestMillis = 40
const slowestMillis = 200

/** Serves on a free port until the scope closes. */
export const serveProvider = (seed: number) =>
  Effect.gen(function* () {
    const random = new Utils.PCGRandom(seed)
    const charges = new Map<string, string>()
    let calls = 0

    const charge = Effect.gen(function* () {
      const { "idempotency-key": key } = yield* HttpServerRequest.schemaHeaders(IdempotencyKey)
      const { invoiceId } = yield* HttpServerRequest.schemaBodyJson(ChargeRequest)
      calls += 1
      const chargeId = charges.get(key) ?? `ch_${String(charges.size + 1)}_${String(invoiceId)}`
      charges.set(key, chargeId)
      yield* Effect.sleep(random.integer(slowestMillis - fastestMillis) + fastestMillis)
      return yield* HttpServerResponse.schemaJson(ChargeResponse)(ChargeResponse.make({ chargeId }))
    })

    const server = yield* NodeHttpServer.make(createServer, { host: "127.0.0.1", port: 0 })
    yield* HttpRouter.empty.pipe(
      HttpRouter.post("/charges", charge),
      HttpServer.serveEffect(),
      Effect.provideService(HttpServer.HttpServer, server)
    )
    return {
      url: HttpServer.formatAddress(server.address),
      /** How often it was called, and how many charges that made. */
      counts: Effect.sync(() => ({ calls, charges: charges.size }))
    }
  })
