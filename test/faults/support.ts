import { Effect, Redacted } from "effect"
import { Client } from "pg"

/** A session of the test's own, by its name. */
export const session = (url: Redacted.Redacted, name: string) =>
  Effect.gen(function* () {
    const client = new Client({ connectionString: Redacted.value(url), application_name: name })
    const heard: Array<string> = []
    client.on("error", () => undefined)
    client.on("notification", ({ channel }) => void heard.push(channel))
    // A client behind a black hole waits for an end that does not come.
    yield* Effect.addFinalizer(() =>
      Effect.promise(() => client.end()).pipe(Effect.timeout("500 millis"), Effect.ignore)
    )
    yield* Effect.tryPromise(() => client.connect())
    return {
      heard,
      values: (text: string, values: ReadonlyArray<unknown> = []) =>
        Effect.map(
          Effect.tryPromise(() => client.query<Array<unknown>>({ text, values: [...values], rowMode: "array" })),
          ({ rows }) => rows
        )
    }
  })

/** Waits for a condition that the server brings about. */
export const eventually = <E, R>(what: string, condition: Effect.Effect<boolean, E, R>) =>
  condition.pipe(
    Effect.delay("20 millis"),
    Effect.repeat({ until: (met) => met }),
    Effect.timeoutFail({ duration: "40 seconds", onTimeout: () => new Error(`never came: ${what}`) }),
    Effect.asVoid
  )

/** Node's options for a process that runs the sources. */
export const fromSource = ["--conditions=@effect-awa/source", "--import", "tsx"]
