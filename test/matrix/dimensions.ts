/** What the contract must hold in every combination of, and how a test of it is told which one it runs in. */
import { type Major, majors } from "../majors/binaries.js"

/** Quotes of both kinds, spaces, capitals and a letter that is two bytes long. */
export const oddSchema = `Jobs "of" Ørsted's`

export const dimensions = {
  major: majors,
  profile: ["compatible", "strict"],
  pooler: ["none", "session", "transaction"],
  // west of UTC and east of it, so that a wrong sign cannot pass for both
  zone: ["America/New_York", "Pacific/Kiritimati"],
  schema: ["awa", "odd"],
  isolation: ["read committed", "repeatable read", "serializable"]
} as const

type Dimensions = typeof dimensions

/** One combination. */
export type Cell = { readonly [D in keyof Dimensions]: Dimensions[D][number] }

/** All of them. */
export const product: ReadonlyArray<Cell> = dimensions.major.flatMap((major) =>
  dimensions.profile.flatMap((profile) =>
    dimensions.pooler.flatMap((pooler) =>
      dimensions.zone.flatMap((zone) =>
        dimensions.schema.flatMap((schema) =>
          dimensions.isolation.map((isolation): Cell => ({ major, profile, pooler, zone, schema, isolation }))
        )
      )
    )
  )
)

/** Its coordinates, as `--only` takes them. */
export const nameOf = (cell: Cell): string =>
  Object.entries(cell)
    .map(([dimension, value]) => `${dimension}=${value}`)
    .join(", ")

/** Where a cell's servers are. */
export interface Place {
  /** A superuser's url of the server. */
  readonly server: string
  /** The host and port of the cell's pooler. */
  readonly pooler: string | undefined
}

/** What `cell.ts` reads. */
export const environmentOf = (cell: Cell, { pooler, server }: Place): Readonly<Record<string, string | undefined>> => ({
  AWA_TEST_DATABASE_URL: server,
  AWA_TEST_MAJOR: String(cell.major satisfies Major),
  AWA_TEST_PROFILE: cell.profile,
  AWA_TEST_POOLER: pooler,
  AWA_TEST_POOL_MODE: cell.pooler === "none" ? undefined : cell.pooler,
  AWA_TEST_TIME_ZONE: cell.zone,
  AWA_TEST_SCHEMA: cell.schema === "odd" ? oddSchema : cell.schema,
  AWA_TEST_ISOLATION: cell.isolation
})
