/**
 * The generated client of the example. An application has run `prisma generate`, and imports `PrismaClient` from there; here it is
 * generated when the example runs, so that nothing generated is kept in the repository.
 */
import { spawnSync } from "node:child_process"
import { createRequire } from "node:module"
import { join } from "node:path"
import { pathToFileURL } from "node:url"
import { Predicate } from "effect"
import type { OpenTransaction } from "effect-awa/drivers/Prisma"

/** What the example uses of it. */
export interface Transaction extends OpenTransaction {
  readonly invoice: {
    readonly create: (args: { readonly data: { readonly id: number; readonly state: string } }) => Promise<unknown>
    readonly update: (args: {
      readonly where: { readonly id: number }
      readonly data: { readonly state: string }
    }) => Promise<unknown>
  }
}

export interface Client extends OpenTransaction {
  readonly $disconnect: () => Promise<void>
  readonly $transaction: <A>(body: (tx: Transaction) => Promise<A>) => Promise<A>
}

type ClientClass = new (options: { readonly adapter: object }) => Client

const isClientClass = (value: unknown): value is ClientClass => typeof value === "function"

export const prismaClient = async (adapter: object): Promise<Client> => {
  const command = createRequire(import.meta.url).resolve("prisma/build/index.js")
  const args = [command, "generate", "--schema", join(import.meta.dirname, "schema.prisma")]
  // the engine that Prisma would fetch is for migrations
  const env = { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: "1" }
  const { status, stderr } = spawnSync(process.execPath, args, { env, encoding: "utf8" })
  if (status !== 0) throw new Error(`prisma generate: ${stderr}`)
  const path = join(import.meta.dirname, "../../../.tmp/prisma-example/client.ts")
  const module: unknown = await import(pathToFileURL(path).href)
  if (!Predicate.hasProperty(module, "PrismaClient") || !isClientClass(module.PrismaClient)) {
    throw new Error("prisma generate made another module")
  }
  return new module.PrismaClient({ adapter })
}
