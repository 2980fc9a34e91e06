import type { Mutant } from "../mutants.js"
import { oddSchema } from "../matrix/dimensions.js"

const jobs = "test/matrix/Jobs.test.ts"
const attempts = "test/matrix/Attempts.test.ts"
const ordinary = "test/runtime/Ordinary.test.ts"

const east = { AWA_TEST_TIME_ZONE: "Pacific/Kiritimati" }
const west = { AWA_TEST_TIME_ZONE: "America/New_York" }
const odd = { AWA_TEST_SCHEMA: oddSchema }
const serializable = { AWA_TEST_ISOLATION: "serializable" }

/** What is right in UTC, in a schema without a capital, in READ COMMITTED: only another cell of the matrix turns red. */
export const matrixMutants: ReadonlyArray<Mutant> = [
  {
    name: "read a schedule in the session's zone",
    file: "schema/functions/010_enqueue.sql",
    from: "coalesce((j.e -> 'opts' ->> 'run_at')::timestamptz,",
    to: "coalesce(((j.e -> 'opts' ->> 'run_at')::timestamptz at time zone 'UTC')::timestamptz,",
    suite: jobs,
    test: "is due at the moment that was said, in whatever zone that was [matrix]",
    env: west
  },
  {
    name: "tell a time without its zone",
    file: "src/internal/adminCall.ts",
    from: "`to_json(${column}) #>> '{}'`",
    to: "`to_json(${column}::timestamp) #>> '{}' || 'Z'`",
    suite: jobs,
    test: "that its caller completed reads back, with its times and its attempts [matrix]",
    env: east
  },
  {
    name: "beat by the session's clock",
    file: "schema/functions/060_heartbeat.sql",
    from: "  v_now    timestamptz := clock_timestamp();",
    to: "  v_now    timestamptz := clock_timestamp() at time zone 'UTC';",
    suite: attempts,
    test: "is rescued when it is not beaten for, and then nothing of it counts any more [matrix]",
    env: east
  },
  {
    name: "name a sequence without its quotes",
    file: "schema/functions/010_enqueue.sql",
    from: "nextval({{schema_text entry_seq}}) as seq",
    to: "nextval(({{schema_name}} || '.entry_seq')::regclass) as seq",
    suite: jobs,
    test: "is enqueued with the caller's rows, or not at all [matrix]",
    env: odd
  },
  {
    name: "name the schema without its quotes",
    file: "src/RuntimePool.ts",
    from: "const quotedSchema = quoteIdentifier(schema)",
    to: "const quotedSchema = schema",
    suite: ordinary,
    test: "is retried until it succeeds, with its failures kept [matrix]",
    env: odd
  },
  {
    name: "look at the ring in whatever isolation there is",
    file: "src/Storage.ts",
    from: '"begin isolation level read committed read only"',
    to: '"begin read only"',
    suite: "test/matrix/Operators.test.ts",
    test: "is shown with the age of its current segment [matrix]",
    env: serializable
  },
  {
    name: "let the database's default isolation into the runtime's transactions",
    file: "src/internal/runtimeCall.ts",
    from: "`begin isolation level read committed; set local statement_timeout",
    to: "`begin; set local statement_timeout",
    suite: ordinary,
    test: "is retried until it succeeds, with its failures kept [matrix]",
    env: serializable
  }
]
