import * as Metric from "effect/Metric"

/** @internal */
export const reconciliations = Metric.counter("effect_awa_reconciliations_total", {
  description: "What became of caller-owned attempts after their handlers ended, by verdict and by the handler's exit",
  incremental: true
})

/** @internal */
export const protocolEvents = Metric.counter("effect_awa_protocol_events_total", {
  description: "Exits of caller-owned handlers that their evidence contradicts, and what else is out of the ordinary",
  incremental: true
})

/** @internal */
export const unresolved = Metric.gauge("effect_awa_unresolved", {
  description: "Attempts whose permits were released without evidence, and which are watched"
})

/** @internal */
export const permitsKept = Metric.gauge("effect_awa_permits_kept", {
  description: "Attempts past their reconciliation budget that keep their permits, because no more can be watched"
})
