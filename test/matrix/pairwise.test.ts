import { assert, describe, it } from "@effect/vitest"
import { FastCheck } from "effect"
import { dimensions, product } from "./dimensions.js"
import { pairsOf, pairwise } from "./pairwise.js"

describe("the cells of the matrix", () => {
  it("hold every two values of two dimensions, in no more cells than its two longest dimensions need", () => {
    const values = Object.entries(dimensions).map(([dimension, all]) => all.map((value) => `${dimension}=${value}`))
    const wanted = values.flatMap((some, at) =>
      values.slice(at + 1).flatMap((others) => some.flatMap((one) => others.map((other) => `${one} & ${other}`)))
    )
    const cells = pairwise(product)
    const found = new Set(cells.flatMap(pairsOf))
    assert.deepStrictEqual(
      wanted.filter((pair) => !found.has(pair)),
      []
    )
    assert.lengthOf(cells, 12) // 4 majors by 3 poolers
    assert.deepStrictEqual(pairwise(product), cells)
  })

  it("are the whole product when every combination is asked for", () => {
    const sizes = Object.values(dimensions).map(({ length }) => length)
    assert.lengthOf(product, 288)
    assert.strictEqual(
      product.length,
      sizes.reduce((all, size) => all * size, 1)
    )
    assert.lengthOf(new Set(product.map((cell) => JSON.stringify(cell))), product.length)
  })
})

describe("pairwise", () => {
  it("covers the pairs of any dimensions, with none left out and no cell in vain", () => {
    const sizes = FastCheck.array(FastCheck.integer({ min: 1, max: 4 }), { minLength: 2, maxLength: 4 })
    FastCheck.assert(
      FastCheck.property(sizes, (lengths) => {
        const all = lengths.reduce<ReadonlyArray<Readonly<Record<string, number>>>>(
          (some, length, at) => some.flatMap((one) => Array.from({ length }, (_, value) => ({ ...one, [at]: value }))),
          [{}]
        )
        const cells = pairwise(all)
        assert.deepStrictEqual(new Set(cells.flatMap(pairsOf)), new Set(all.flatMap(pairsOf)))
        let seen = new Set<string>()
        for (const cell of cells) {
          const more = new Set([...seen, ...pairsOf(cell)])
          assert.isAbove(more.size, seen.size)
          seen = more
        }
      }),
      { numRuns: 50 }
    )
  })
})
