/** The processes of a load, seen from the benchmark. */
import { Schema } from "effect"
import { type ChildProcess, fork } from "node:child_process"
import { fileURLToPath } from "node:url"
import { FromChild, type Load, type Sample, type ToChild } from "./protocol.js"
import { addHistograms, type Histogram } from "./statistics.js"

export interface Running {
  readonly samples: ReadonlyArray<Sample>
  readonly onSample: (listen: (sample: Sample) => void) => void
  readonly tell: (message: ToChild) => void
  /** Lets it come to its end. */
  readonly stop: () => Promise<void>
}

const program = fileURLToPath(new URL("load.ts", import.meta.url))

/** The options of this very process, so that the other one runs the same sources. */
export const start = (load: Load): Promise<Running> =>
  new Promise((resolve, reject) => {
    const child: ChildProcess = fork(program, [JSON.stringify(load)], { execArgv: process.execArgv })
    const samples: Array<Sample> = []
    const listeners: Array<(sample: Sample) => void> = []
    let stopping = false
    let failure: Error | undefined
    const exited = new Promise<void>((done) => child.once("exit", () => done()))
    child.once("exit", (code) => {
      failure ??= stopping ? undefined : new Error(`the ${load.role} ended by itself (${code ?? "killed"})`)
      if (failure !== undefined) reject(failure)
      if (failure !== undefined && !stopping) console.error(failure.message)
    })
    const running: Running = {
      samples,
      onSample: (listen) => listeners.push(listen),
      tell: (message) => {
        if (child.connected) child.send(message)
      },
      stop: async () => {
        stopping = true
        if (child.connected) child.send({ type: "stop" } satisfies ToChild)
        await exited
        if (failure !== undefined) throw failure
      }
    }
    child.on("message", (raw) => {
      const message = Schema.decodeUnknownSync(FromChild)(raw)
      switch (message.type) {
        case "ready":
          return resolve(running)
        case "failed":
          failure = new Error(`the ${load.role} failed: ${message.reason}`)
          return
        case "sample":
          samples.push(message.sample)
          for (const listen of listeners) listen(message.sample)
      }
    })
  })

/** All of them, also when one fails. */
export const stopAll = async (processes: ReadonlyArray<Running>): Promise<void> => {
  const ends = await Promise.allSettled(processes.map((running) => running.stop()))
  for (const end of ends) if (end.status === "rejected") throw end.reason
}

/** The producer brakes by what the worker has taken. */
export const couple = (producer: Running, worker: Running): void =>
  worker.onSample(({ counters }) => producer.tell({ type: "taken", count: counters["fresh"] ?? 0 }))

export interface Window {
  /** Milliseconds since 1970. */
  readonly from: number
  readonly to: number
  readonly perSecond: number
  readonly latency: Histogram
}

/** The last sample at or before a time. */
const sampleAt = (samples: ReadonlyArray<Sample>, at: number): number => {
  let [low, high] = [0, samples.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((samples[middle]?.at ?? 0) <= at) low = middle + 1
    else high = middle
  }
  return low - 1
}

/** A counter's rate in each whole window of a stretch. */
export const windows = (
  samples: ReadonlyArray<Sample>,
  counter: string,
  from: number,
  to: number,
  millis: number
): ReadonlyArray<Window> =>
  Array.from({ length: Math.floor((to - from) / millis) }, (_, n) => {
    const first = Math.max(0, sampleAt(samples, from + n * millis))
    const last = sampleAt(samples, from + (n + 1) * millis)
    const [a, b] = [samples[first], samples[last]]
    const took = a === undefined || b === undefined ? 0 : b.at - a.at
    return {
      from: from + n * millis,
      to: from + (n + 1) * millis,
      perSecond: took === 0 ? 0 : (((b?.counters[counter] ?? 0) - (a?.counters[counter] ?? 0)) / took) * 1000,
      latency: addHistograms(samples.slice(first + 1, last + 1).map((sample) => sample.latency))
    }
  })

export const now = (): number => performance.timeOrigin + performance.now()

export const sleep = (millis: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, millis))
