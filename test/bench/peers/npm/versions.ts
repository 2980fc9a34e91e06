/** The version of an installed package. */
import { readFileSync } from "node:fs"

/** The bundles that call this are in dist, beside the packages. */
export const versionOf = (name: string): string => {
  const read: unknown = JSON.parse(
    readFileSync(new URL(`../node_modules/${name}/package.json`, import.meta.url), "utf8")
  )
  return typeof read === "object" && read !== null && "version" in read ? String(read.version) : "unknown"
}
