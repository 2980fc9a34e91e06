/** Charts as SVG, written by hand: lines over time, and bars. */
import { Resvg } from "@resvg/resvg-js"

export interface Series {
  readonly name: string
  readonly points: ReadonlyArray<readonly [number, number]>
}

export interface Chart {
  readonly name: string
  readonly title: string
  readonly kind: "lines" | "bars"
  readonly x: string
  readonly y: string
  readonly series: ReadonlyArray<Series>
  /** Names of the places on a bar chart's x axis. */
  readonly categories?: ReadonlyArray<string>
  /** Stretches of the x axis with a name of their own. */
  readonly phases?: ReadonlyArray<{ readonly name: string; readonly from: number; readonly to: number }>
  /** A line at this height: the target. */
  readonly target?: number
}

const width = 960
const height = 420
const inner = { left: 84, right: 24, top: 48, bottom: 84 }
const colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#000000"]

const escape = (text: string): string =>
  text.replace(/[<>&"]/g, (char) => ({ "<": "&lt;", ">": "&gt;", "&": "&amp;" })[char] ?? "&quot;")

/** Whole, round steps: 1, 2 or 5 times a power of ten. */
const steps = (from: number, to: number, wanted = 6): ReadonlyArray<number> => {
  if (!(to > from)) return [from]
  const rough = (to - from) / wanted
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) ?? 10 * power
  const first = Math.ceil(from / step)
  return Array.from({ length: Math.floor(to / step) - first + 1 }, (_, i) => (first + i) * step)
}

const short = (value: number): string => {
  const size = Math.abs(value)
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`
  return String(Number(value.toPrecision(3)))
}

export const svg = (chart: Chart): string => {
  const points = chart.series.flatMap((series) => series.points).filter(([, y]) => Number.isFinite(y))
  const xs = points.map(([x]) => x)
  const bars = chart.kind === "bars"
  const [minX, maxX] = bars
    ? [-0.5, Math.max(0, (chart.categories?.length ?? 1) - 1) + 0.5]
    : [Math.min(0, ...xs), Math.max(1, ...xs)]
  const maxY = 1.08 * Math.max(1e-9, chart.target ?? 0, ...points.map(([, y]) => y))
  const minY = Math.min(0, ...points.map(([, y]) => y))
  const toX = (x: number) => inner.left + ((x - minX) / (maxX - minX)) * (width - inner.left - inner.right)
  const toY = (y: number) => height - inner.bottom - ((y - minY) / (maxY - minY)) * (height - inner.top - inner.bottom)
  const parts: Array<string> = []
  const text = (x: number, y: number, content: string, more = 'text-anchor="middle"') =>
    parts.push(`<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" ${more}>${escape(content)}</text>`)

  chart.phases?.forEach((phase, i) => {
    const [from, to] = [toX(Math.max(minX, phase.from)), toX(Math.min(maxX, phase.to))]
    const box = `x="${from.toFixed(1)}" y="${inner.top}" width="${Math.max(0, to - from).toFixed(1)}" height="${height - inner.top - inner.bottom}"`
    parts.push(`<rect ${box} fill="${i % 2 === 0 ? "#f4f4f4" : "#e2e8ee"}"/>`)
    text((from + to) / 2, inner.top + 14, phase.name, 'text-anchor="middle" fill="#555" font-size="11"')
  })
  for (const y of steps(minY, maxY)) {
    parts.push(
      `<line x1="${inner.left}" x2="${width - inner.right}" y1="${toY(y).toFixed(1)}" y2="${toY(y).toFixed(1)}" stroke="#d0d0d0"/>`
    )
    text(inner.left - 8, toY(y) + 4, short(y), 'text-anchor="end"')
  }
  if (bars) chart.categories?.forEach((name, i) => text(toX(i), height - inner.bottom + 18, name))
  else for (const x of steps(minX, maxX, 10)) text(toX(x), height - inner.bottom + 18, short(x))

  chart.series.forEach((series, n) => {
    const colour = colours[n % colours.length] ?? "#000"
    if (bars) {
      const slot = (toX(1) - toX(0)) * 0.8
      const size = slot / chart.series.length
      for (const [x, y] of series.points) {
        const left = toX(x) - slot / 2 + n * size
        parts.push(
          `<rect x="${left.toFixed(1)}" y="${toY(y).toFixed(1)}" width="${(size * 0.92).toFixed(1)}" height="${(toY(0) - toY(y)).toFixed(1)}" fill="${colour}"/>`
        )
        text(left + size / 2, toY(y) - 4, short(y), 'text-anchor="middle" font-size="11"')
      }
    } else {
      const path = series.points
        .filter(([, y]) => Number.isFinite(y))
        .map(([x, y], i) => `${i === 0 ? "M" : "L"}${toX(x).toFixed(1)} ${toY(y).toFixed(1)}`)
      parts.push(`<path d="${path.join("")}" fill="none" stroke="${colour}" stroke-width="1.8"/>`)
    }
    const legend = inner.left + (n % 4) * 215
    const row = height - 32 + Math.floor(n / 4) * 16
    parts.push(`<rect x="${legend}" y="${row - 9}" width="10" height="10" fill="${colour}"/>`)
    text(legend + 16, row, series.name, 'text-anchor="start"')
  })
  if (chart.target !== undefined) {
    const y = toY(chart.target).toFixed(1)
    parts.push(
      `<line x1="${inner.left}" x2="${width - inner.right}" y1="${y}" y2="${y}" stroke="#c00" stroke-dasharray="6 4"/>`
    )
  }
  text(inner.left, 26, chart.title, 'text-anchor="start" font-size="16" font-weight="bold"')
  text((inner.left + width - inner.right) / 2, height - 48, chart.x)
  text(18, height / 2, chart.y, `text-anchor="middle" transform="rotate(-90 18 ${height / 2})"`)
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="DejaVu Sans, Arial, sans-serif" font-size="12">`,
    `<rect width="${width}" height="${height}" fill="#fff"/>`,
    ...parts,
    "</svg>"
  ].join("\n")
}

/** Twice the size. Text is drawn with the system's fonts. */
export const png = (drawing: string): Buffer =>
  new Resvg(drawing, { fitTo: { mode: "zoom", value: 2 }, font: { loadSystemFonts: true } }).render().asPng()
