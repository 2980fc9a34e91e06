/** The generated client, made when a test asks for it: nothing that is generated is kept in the repository. */
import { spawnSync } from "node:child_process"
import { join } from "node:path"
import { pathToFileURL } from "node:url"
import { Predicate } from "effect"
import type * as Adapter from "effect-awa/drivers/Prisma"

/** What is used of it. That the generated types satisfy the adapter as well is tested by the compiler. */
export interface Transaction extends Adapter.OpenTransaction {
  readonly row: { readonly create: (args: { readonly data: { readonly tag: string } }) => Promise<unknown> }
  readonly $transaction: <A>(body: (tx: Transaction) => Promise<A>) => Promise<A>
}

export interface Client extends Adapter.OpenTransaction {
  readonly $connect: () => Promise<void>
  readonly $disconnect: () => Promise<void>
  readonly $transaction: <A>(
    body: (tx: Transaction) => Promise<A>,
    options?: {
      readonly isolationLevel?: "ReadCommitted" | "RepeatableRead" | "Serializable"
      readonly maxWait?: number
      readonly timeout?: number
    }
  ) => Promise<A>
}

const root = join(import.meta.dirname, "../../../../..")

export const generated = join(root, ".tmp/prisma")

/** By the command line of Prisma, which would fetch an engine that it does not need here, and ask for its newest version. */
export const generate = (): void => {
  const command = [
    join(root, "node_modules/prisma/build/index.js"),
    "generate",
    "--schema",
    join(import.meta.dirname, "schema.prisma")
  ]
  const env = { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: "1" }
  const { status, stderr, stdout } = spawnSync(process.execPath, command, { cwd: root, env, encoding: "utf8" })
  if (status !== 0) throw new Error(`prisma generate: ${stdout}${stderr}`)
}

type ClientClass = new (options: { readonly adapter: object }) => Client

const isClientClass = (value: unknown): value is ClientClass => typeof value === "function"

/** A client of the generated module. */
export const makeClient = async (adapter: object): Promise<Client> => {
  const module: unknown = await import(pathToFileURL(join(generated, "client.ts")).href)
  if (!Predicate.hasProperty(module, "PrismaClient") || !isClientClass(module.PrismaClient)) {
    throw new Error("prisma generate made another module")
  }
  return new module.PrismaClient({ adapter })
}
