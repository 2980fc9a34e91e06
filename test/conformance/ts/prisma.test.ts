/** Prisma's adapter, in Prisma's own transactions, against a real worker. */
import { spawnSync } from "node:child_process"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, it } from "@effect/vitest"
import { Predicate } from "effect"
import * as Prisma from "effect-awa/drivers/Prisma"
import { Notify } from "../../runtime/world.js"
import { attempt, Ended } from "./cases.js"
import { open } from "./drivers/prisma.js"
import { generate, generated } from "./drivers/prisma/client.js"
import { failsOnLostConnection, failsUnawaited, refusedBeforeSql } from "./particulars.js"
import { conformance } from "./suite.js"

generate()

conformance("Prisma", open, [
  failsUnawaited(),
  failsOnLostConnection(),
  refusedBeforeSql("outside a transaction", "no transaction is open", ({ prisma }, job) =>
    Prisma.completeInTx(prisma, job, { expect: false })
  ),
  {
    name: "a twin is the server's unique violation, without what the server said of it",
    contract: "C-12",
    handler: (driver, job) =>
      attempt(() =>
        driver.transaction("read committed", async (tx) => {
          await driver.write(tx, job.payload.tag)
          const twin = () =>
            Prisma.enqueue(tx, Notify, { tag: "twin" }, { unique: { by: ["args"], onConflict: "error" } })
          await twin()
          const error: unknown = await twin().catch((error: unknown) => error)
          // with the server's DETAIL it would be a DuplicateJob
          throw Predicate.hasProperty(error, "code") ? new Ended({ with: String(error.code) }) : error
        })
      ),
    state: "failed",
    rows: 0,
    error: "Ended",
    message: '{ "with": "23505" }'
  }
])

it("a generated client is what the adapter asks for", () => {
  writeFileSync(
    join(generated, "typed.ts"),
    `import type { Driver } from "effect-awa"
import * as Adapter from "effect-awa/drivers/Prisma"
import type { PrismaClient } from "./client.js"

export const all = (prisma: PrismaClient, job: Driver.Finalizable<"charge">) => [
  Adapter.query(prisma),
  Adapter.finalize(prisma, job, (tx) => tx.row.create({ data: { tag: "a" } })),
  prisma.$transaction(async (tx) => {
    await Adapter.expectCompletion(tx, job)
    return tx.$transaction((inner) => Adapter.completeInTx(inner, job))
  })
]
`
  )
  writeFileSync(
    join(generated, "tsconfig.json"),
    JSON.stringify({
      extends: "../../tsconfig.json",
      compilerOptions: { incremental: false, tsBuildInfoFile: null, allowImportingTsExtensions: true },
      include: ["typed.ts"],
      exclude: []
    })
  )
  const tsc = join(generated, "../../node_modules/typescript/bin/tsc")
  const { stdout } = spawnSync(process.execPath, [tsc, "-p", generated, "--pretty", "false"], { encoding: "utf8" })
  assert.strictEqual(stdout, "")
})
