/** The strict profile of the suites: `AWA_TEST_PROFILE=strict npm test`. */
import type { Effect } from "effect"
import { Redacted } from "effect"
import { Roles } from "effect-awa"

export const isStrict = process.env["AWA_TEST_PROFILE"] === "strict"

const owners = { schemaOwner: "awa_test_owner", executionOwner: "awa_test_execution" } as const
const [application, runtime] = ["awa_test_application", "awa_test_runtime"]

/** Before any test: roles are the server's, and two sessions that make the same one get in each other's way. */
export const rolesText = `do $$ declare v_role text; begin
  foreach v_role in array '{${[...Object.values(owners), application, runtime].join()}}'::text[] loop
    if not exists (select from pg_roles where rolname = v_role) then
      execute format('create role %I nologin noinherit', v_role);
    end if;
  end loop;
end $$`

/** Hands an installation over: from here on what runs in it may do what the manifest says, and no more. */
export const makeStrict = (url: string): Effect.Effect<void, Roles.RolesError> =>
  Roles.apply({
    url: Redacted.make(url),
    profile: "strict",
    part: "privileges",
    ...owners,
    bindings: {
      producer: [application],
      finalizer: [application],
      expectation: [application],
      callback: [application],
      executor: [runtime],
      maintenance: [runtime]
    }
  })
