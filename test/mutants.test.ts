import { assert, describe, it } from "@effect/vitest"
import * as Fs from "node:fs"
import * as Path from "node:path"
import { mutants } from "./mutants.js"

const root = Path.join(import.meta.dirname, "..")

describe("the sabotages", () => {
  for (const { file, from, name, suite, to } of mutants) {
    it(`"${name}" finds its place`, () => {
      const text = Fs.readFileSync(Path.join(root, file), "utf8")
      assert.lengthOf(text.split(from), 2, `the text to replace must be in ${file} once`)
      assert.notStrictEqual(from, to)
      assert.isTrue(Fs.existsSync(Path.join(root, suite)))
    })
  }

  it("have names of their own", () => {
    assert.lengthOf(new Set(mutants.map(({ name }) => name)), mutants.length)
  })
})
