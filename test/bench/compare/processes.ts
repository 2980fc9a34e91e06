/** What the operating system knows of processes; nothing is known where there is no /proc. */
import { readdirSync, readFileSync } from "node:fs"

/** Of Linux, on every architecture that Node runs on. */
const ticksPerSecond = 100

interface Ticks {
  readonly parent: number
  readonly own: number
  /** Of its children that have ended and were waited for. */
  readonly children: number
}

const ticksOf = (pid: number): Ticks | undefined => {
  try {
    // the name of the program, in parentheses, may contain anything
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(")").at(-1)?.trim().split(" ").map(Number) ?? []
    const [, parent = 0] = fields
    const [own = 0, system = 0, children = 0, childrenSystem = 0] = fields.slice(11)
    return { parent, own: own + system, children: children + childrenSystem }
  } catch {
    return undefined
  }
}

export interface Used {
  readonly cpuSeconds: number
  readonly peakBytes: number
}

/** What a process has used so far. */
export const usedBy = (pid: number): Used | undefined => {
  const ticks = ticksOf(pid)
  if (ticks === undefined) return undefined
  try {
    const status = readFileSync(`/proc/${pid}/status`, "utf8")
    const peak = /^VmHWM:\s+(\d+) kB/m.exec(status)?.[1]
    return { cpuSeconds: ticks.own / ticksPerSecond, peakBytes: Number(peak ?? 0) * 1024 }
  } catch {
    return undefined
  }
}

/** What a process and its children, also those that have ended, have used so far. */
export const usedByFamily = (pid: number): number | undefined => {
  const root = ticksOf(pid)
  if (root === undefined) return undefined
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name))
  const living = pids.map((name) => ticksOf(Number(name))).filter((ticks) => ticks?.parent === pid)
  const ticks = living.reduce(
    (sum, child) => sum + (child?.own ?? 0) + (child?.children ?? 0),
    root.own + root.children
  )
  return ticks / ticksPerSecond
}
