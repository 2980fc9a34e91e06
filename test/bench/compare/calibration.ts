/** How quick the machine is at this moment: its processor by hashing, its disk by flushing. */
import { createHash } from "node:crypto"
import { closeSync, fdatasyncSync, mkdirSync, openSync, rmSync, writeSync } from "node:fs"
import { join } from "node:path"
import { median } from "../storage/statistics.js"

export interface Calibration {
  /** Blocks hashed in a second. */
  readonly cpu: number
  /** Flushes of 8 kB in a second. */
  readonly fsync: number
}

const slices = 5

const perSecond = (millis: number, one: () => void): number => {
  const begun = performance.now()
  let count = 0
  while (performance.now() - begun < millis) {
    one()
    count += 1
  }
  return (count / (performance.now() - begun)) * 1000
}

const medianOf = (millis: number, one: () => void): number =>
  median(Array.from({ length: slices }, () => perSecond(millis, one)))

/** Flushes a file in the given directory, which should be on the server's disk. */
export const calibrate = (directory: string, quick: boolean): Calibration => {
  const block = Buffer.alloc(16_384, 7)
  const cpu = medianOf(quick ? 20 : 200, () => createHash("sha256").update(block).digest())
  mkdirSync(directory, { recursive: true })
  const path = join(directory, `calibration-${process.pid}`)
  const file = openSync(path, "w")
  const page = Buffer.alloc(8192, 1)
  const fsync = medianOf(quick ? 20 : 200, () => {
    writeSync(file, page, 0, page.length, 0)
    fdatasyncSync(file)
  })
  closeSync(file)
  rmSync(path)
  return { cpu, fsync }
}

/** The rule: a round counts as noisy when either is this far from the run's median. */
export const tolerance = 0.15

export const isNoisy = (one: Calibration, all: ReadonlyArray<Calibration>): boolean =>
  (["cpu", "fsync"] as const).some((what) => {
    const centre = median(all.map((calibration) => calibration[what]))
    return Math.abs(one[what] / centre - 1) > tolerance
  })
