/** Mutants of callbacks and cancellation in the runtime. */
import type { Mutant } from "../mutants.js"

const suite = "test/runtime/Callbacks.test.ts"

export const callbackMutants: ReadonlyArray<Mutant> = [
  {
    name: "free the permit before the attempt is parked",
    file: "src/Completion.ts",
    from: ": parkUntilAnswered(request, request.ending.callbackId, 0)",
    to: ': Effect.as(Effect.forkDaemon(parkUntilAnswered(request, request.ending.callbackId, 0)), makeSettled("parked", "early"))',
    suite,
    test: "a handler that parks its attempt keeps its permit until the database has answered that it is parked"
  },
  {
    name: "wake nobody who waits for a callback",
    file: "src/internal/callbackWaits.ts",
    from: "for (const queues of woken) for (const queue of queues) queue.unsafeOffer(undefined)",
    to: "void woken",
    suite,
    test: "a handler that waits for its callback goes on with the result at once, and completes in its own transaction with the same token"
  },
  {
    name: "leave an attempt waiting whose handler does not",
    file: "src/internal/callbackWaits.ts",
    from: 'Effect.timeout(Effect.interruptible(ask("stop-waiting", stopText, token, callbackId)), "2 seconds")',
    to: "Effect.void",
    suite,
    test: "a handler that waits for its callback cannot complete its attempt meanwhile, and can when it gave the wait up"
  },
  {
    name: "give a handler whatever its callback was answered with",
    file: "src/internal/attemptHandle.ts",
    from: "decode(value),",
    to: "Effect.orElseSucceed(decode(value), () => JSON.parse(JSON.stringify(value))),",
    suite,
    test: "a handler that waits for its callback fails typed: a failed callback, a result that is none, a timeout, one that was replaced"
  },
  {
    name: "take JSON's null for no result",
    file: "src/Claim.ts",
    from: "Option.some<unknown>(row[14][0])",
    to: "Option.fromNullable<unknown>(row[14][0])",
    suite,
    test: "a handler that parks its attempt frees its permit, and its job goes on with the result when the callback is answered"
  },
  {
    name: "settle a caller-owned attempt that parks like any other",
    file: "src/internal/settleAttempt.ts",
    from: "(ending.callbackId === undefined\n      ?",
    to: "(ending.callbackId !== null\n      ?",
    suite,
    test: "a handler that parks its attempt says so by a failure when it is caller-owned; also when the database's answer was lost"
  },
  {
    name: "retry an attempt that parks on a foreign callback for ever",
    file: "src/Completion.ts",
    from: '          case "replaced":\n            return enqueue({ ...request, ending: noCallback(request.ending) })\n          case "busy":',
    to: '          case "replaced":\n          case "busy":',
    suite,
    test: "a handler that parks its attempt fails for good on a callback that is not its own"
  },
  {
    name: "send a result of any size",
    file: "src/Callbacks.ts",
    from: 'Buffer.byteLength(json, "utf8") > maxResultBytes',
    to: 'Buffer.byteLength(json, "utf8") > maxResultBytes * 100',
    suite,
    test: "an answer is refused before any SQL when it cannot be stored, and typed when its callback is unknown"
  },
  {
    name: "let announced cancellations wait for the next beat",
    file: "src/internal/workerLoops.ts",
    from: "if (subject !== undefined) named.unsafeOffer(subject)",
    to: "void subject",
    suite,
    test: "a cancellation that is announced interrupts its handler at once, and frees the permit"
  },
  {
    name: "believe an announced cancellation",
    file: "src/internal/workerLoops.ts",
    from: "yield* Effect.catchAll(beatFor(heartbeat, entries), (error) =>",
    to: 'yield* Effect.forEach(entries, (entry) => interrupt(entry, "lost"))\n      yield* Effect.catchAll(beatFor(heartbeat, []), (error) =>',
    suite,
    test: "a cancellation that is announced is a hint: an attempt that the database still holds goes on"
  },
  {
    name: "do no maintenance of leases",
    file: "src/internal/maintenanceSteps.ts",
    from: 'step("rescue-leases", "rescue_leases($1::interval, $2)", [\n      interval(staleness),\n      leaseRescueLimit\n    ])',
    to: "Effect.succeed([0])",
    suite,
    test: "maintenance ends a parked attempt when its callback does not come in time"
  },
  {
    name: "let a gone database hold an interrupted wait",
    file: "src/internal/callbackWaits.ts",
    from: 'Effect.timeout(Effect.interruptible(ask("stop-waiting", stopText, token, callbackId)), "2 seconds")',
    to: 'Effect.timeout(ask("stop-waiting", stopText, token, callbackId), "2 seconds")',
    suite: "test/callbackWaits.test.ts",
    test: "a wait for a callback that is interrupted while the database is gone ends within its time"
  },
  {
    name: "spin on a due lease that somebody holds",
    file: "src/internal/maintenanceSteps.ts",
    from: "nextDue === 0n && count < leaseRescueLimit ? 1_000 : Number(nextDue)",
    to: "Number(nextDue)",
    suite: "test/maintenanceSteps.test.ts",
    test: "rescue of leases looks again in a second, not at once, at one that is due and held by somebody"
  },
  {
    name: "sleep for as long as a rate's interval",
    file: "src/internal/claimLoop.ts",
    from: "Effect.sleep(Duration.min(found.for, maxLimited))",
    to: "Effect.sleep(found.for)",
    suite: "test/claimLoop.test.ts",
    test: "a worker whose queue is at its rate asks again when the database says, and after half a minute at the latest: the rate may be raised"
  },
  {
    name: "claim for each free permit while plenty of attempts wait for a connection",
    file: "src/internal/claimLoop.ts",
    from: "free < manyGathered(on.permits) && hasPlenty(on.waiting)",
    to: "free < 0 && hasPlenty(on.waiting)",
    suite: "test/claimLoop.test.ts",
    test: "wait for more of them while plenty of the queue's attempts wait for a connection, and not for ever"
  },
  {
    name: "gather permits for ever",
    file: "src/internal/claimLoop.ts",
    from: "      leftMillis > 0 && free",
    to: "      free",
    suite: "test/claimLoop.test.ts",
    test: "wait for more of them while plenty of the queue's attempts wait for a connection, and not for ever"
  },
  {
    name: "let somebody who misses an answer wait with the patient",
    file: "src/internal/batcher.ts",
    from: "queue.every(({ item }) => isPatient(item))",
    to: "queue.some(({ item }) => isPatient(item))",
    suite: "test/batcher.test.ts",
    test: "wait longer while nobody misses the answers: until somebody does, there are many, or it is long"
  }
]
