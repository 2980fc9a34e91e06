/** Faults that doctor must find, and what it says must mend them: one at a time, in an installation of the strict profile. */
import { assert } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { Doctor } from "effect-awa"
import { type Strict, strict } from "../privileges/support.js"

export const schema = `We"ird`
export const quoted = `"We""ird"`

/** One for all faults of a file: each of them is gone before the next one. */
export class Installation extends Context.Tag("test/doctor/Installation")<Installation, Strict>() {
  static readonly layer = Layer.scoped(Installation, strict(schema))
}

/** A fault, and the one finding that it must be. */
export interface Fault {
  readonly name: string
  readonly sql: (installed: Strict) => string
  readonly code: Doctor.Code
  readonly found: RegExp
  /** Only where the finding has no SQL of its own. */
  readonly byHand?: (installed: Strict) => string
  /** What the fault left behind that is none any more: roles, mostly. */
  readonly after?: (installed: Strict) => string
  readonly severity?: Doctor.Finding["severity"]
}

export const examine = (installed: Strict, options: Partial<Doctor.DoctorOptions> = {}) =>
  Effect.map(Doctor.examine({ url: installed.redacted, schema, strict: true, ...options }), ({ findings }) => findings)

/** Without what is the server's, and not this installation's: other tests' sessions, settings of the machine. */
export const isHealthy = (findings: ReadonlyArray<Doctor.Finding>) =>
  assert.deepStrictEqual(
    findings.map(({ code, found, object }) => `${code}: ${object}: ${found}`),
    []
  )

export const findsAndMends = (fault: Fault) =>
  Effect.gen(function* () {
    const installed = yield* Installation
    const { admin } = installed
    isHealthy(yield* examine(installed))
    yield* admin.script(fault.sql(installed))
    const findings = yield* examine(installed)
    assert.deepStrictEqual(
      findings.map(({ code }) => code),
      [fault.code],
      JSON.stringify(findings, undefined, 1)
    )
    const [finding] = findings
    if (finding === undefined) return
    assert.match(finding.found, fault.found)
    assert.notStrictEqual(finding.found, finding.expected)
    if (fault.severity !== undefined) assert.strictEqual(finding.severity, fault.severity)
    if (fault.byHand === undefined) {
      if (finding.sql === null) return assert.fail("no SQL mends it")
      yield* admin.script(finding.sql)
    } else {
      assert.isNull(finding.sql)
      assert.isNotNull(finding.advice)
      yield* admin.script(fault.byHand(installed))
    }
    isHealthy(yield* examine(installed))
    if (fault.after !== undefined) yield* admin.script(fault.after(installed))
  })

/** Several findings at once, and each mended in its turn. */
export const findsAll = (installed: Strict, codes: ReadonlyArray<Doctor.Code>) =>
  Effect.gen(function* () {
    const findings = yield* examine(installed)
    assert.deepStrictEqual(findings.map(({ code }) => code).toSorted(), codes.toSorted())
    for (const { sql } of findings) yield* installed.admin.script(sql ?? "")
    isHealthy(yield* examine(installed))
  })
