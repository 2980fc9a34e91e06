/** The run as plots: SVG that needs no script and no style sheet. */
import * as Plot from "@observablehq/plot"
import { parseHTML } from "linkedom"
import type { Entry } from "./journal.js"
import { measures } from "./measures.js"
import { peersOf, type Row, rowsOf } from "./summary.js"

/** By its type it is one of a browser, whose names this program does not know. */
const page: unknown = parseHTML("<!doctype html><html><body></body></html>")
const document: unknown = page instanceof Object ? Reflect.get(page, "document") : undefined

const ours = "#d55e00"
const others = "#0072b2"
const reference = "#7f7f7f"
const style = { background: "white", fontFamily: "system-ui, sans-serif", fontSize: "12px" }

/** By name in the plot, as the peers call themselves. */
const namesOf = (entries: ReadonlyArray<Entry>) =>
  new Map(peersOf(entries).map(({ description, peer }) => [peer, description.name]))

const colourOf = (peer: string): string =>
  peer.startsWith("effect-awa") ? ours : peer === "floor" ? reference : others

/** With the title as a part of the picture: Plot's own would be HTML around it. */
const draw = (title: string, { marks = [], ...options }: Plot.PlotOptions): string => {
  const heading = Plot.text([title], {
    ...{ frameAnchor: "top-left", lineAnchor: "bottom", dy: -26, fontSize: 15, fontWeight: "bold" },
    ...{ dx: 10 - (options.marginLeft ?? 0), facet: "super" }
  })
  const drawn: unknown = Plot.plot({ ...options, marginTop: 56, marks: [heading, ...marks], document, style })
  if (typeof drawn !== "object" || drawn === null || !("outerHTML" in drawn)) throw new Error("nothing was drawn")
  // a figure around the picture is a matter of web pages
  const svg = /<svg[\s\S]*<\/svg>/.exec(String(drawn.outerHTML))?.[0]
  if (svg === undefined) throw new Error("no picture was drawn")
  return svg.includes("xmlns=") ? svg : svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"')
}

interface Bar {
  readonly peer: string
  readonly colour: string
  readonly median: number
  readonly min: number
  readonly max: number
}

const frame = { width: 860, marginLeft: 210, marginRight: 90 }

const bars = (title: string, label: string, list: ReadonlyArray<Bar>): string =>
  draw(title, {
    ...frame,
    height: 100 + 28 * list.length,
    x: { label, grid: true, zero: true, tickFormat: "~s" },
    y: { label: null, domain: list.map(({ peer }) => peer) },
    marks: [
      Plot.barX(list, { x: "median", y: "peer", fill: "colour" }),
      Plot.ruleY(list, { x1: "min", x2: "max", y: "peer", stroke: "black", strokeWidth: 2 }),
      Plot.text(list, {
        x: "max",
        y: "peer",
        text: ({ median }: Bar) => Math.round(median).toLocaleString("en"),
        textAnchor: "start",
        dx: 6
      })
    ]
  })

const barsOf = (rows: ReadonlyArray<Row>, names: ReadonlyMap<string, string>, number: string): ReadonlyArray<Bar> =>
  rows
    .flatMap(({ numbers, peer }) => {
      const spread = numbers[number]
      return spread === undefined ? [] : [{ peer: names.get(peer) ?? peer, colour: colourOf(peer), ...spread }]
    })
    .sort((a, b) => b.median - a.median)

const latencies = (title: string, rows: ReadonlyArray<Row>, names: ReadonlyMap<string, string>): string => {
  const dots = rows.flatMap(({ numbers, peer }) =>
    ["p50", "p95", "p99"].flatMap((quantile) => {
      const spread = numbers[`since the call, ${quantile}`] ?? numbers[quantile]
      return spread === undefined
        ? []
        : [{ peer: names.get(peer) ?? peer, quantile, millis: Math.max(0.1, spread.median) }]
    })
  )
  const order = [...dots].filter(({ quantile }) => quantile === "p50").sort((a, b) => a.millis - b.millis)
  return draw(title, {
    ...frame,
    height: 120 + 28 * order.length,
    x: { label: "milliseconds since the call →", type: "log", grid: true },
    y: { label: null, domain: order.map(({ peer }) => peer) },
    color: { legend: false, domain: ["p50", "p95", "p99"], range: ["#009e73", "#e69f00", "#d55e00"] },
    marks: [
      Plot.ruleY(dots, Plot.groupY({ x1: "min", x2: "max" }, { x: "millis", y: "peer", stroke: "#bbbbbb" })),
      Plot.dot(dots, { x: "millis", y: "peer", fill: "quantile", r: 5 }),
      Plot.text(dots, { x: "millis", y: "peer", text: "quantile", dy: -10, fontSize: 9 })
    ]
  })
}

interface Point {
  readonly peer: string
  readonly facet: string
  readonly x: number
  readonly y: number
}

interface Axes {
  readonly x: string
  readonly y: string
  /** Numbers that double lie at equal distances. */
  readonly doubling: boolean
}

/** Every number there is, as long as there are not too many of them. */
const ticksOf = (points: ReadonlyArray<Point>): ReadonlyArray<number> => {
  const all = [...new Set(points.map(({ x }) => x))].sort((a, b) => a - b)
  const every = Math.ceil(all.length / 20)
  return all.filter((_, at) => at % every === 0)
}

/** Lines of several peers, each named at its end. */
const lines = (title: string, axes: Axes, points: ReadonlyArray<Point>): string => {
  const facets = [...new Set(points.map(({ facet }) => facet))]
  return draw(title, {
    width: 860,
    height: 180 + 160 * facets.length,
    marginLeft: 70,
    marginRight: 170,
    x: { label: axes.x, grid: true, ticks: ticksOf(points), tickFormat: "d", type: axes.doubling ? "log" : "linear" },
    y: { label: axes.y, grid: true, zero: true, tickFormat: "~s" },
    fy: { axis: null, domain: facets },
    color: { legend: false, scheme: "Observable10" },
    marks: [
      Plot.line(points, { x: "x", y: "y", fy: "facet", stroke: "peer", marker: "dot" }),
      Plot.text(facets, { fy: (facet: string) => facet, frameAnchor: "top-left", dx: 6, dy: 4, fontWeight: "bold" }),
      Plot.text(
        points,
        Plot.selectLast({
          ...{ x: "x", y: "y", fy: "facet", z: "peer", text: "peer", fill: "peer" },
          ...{ textAnchor: "start", dx: 8 }
        })
      )
    ]
  })
}

const counted = (rows: ReadonlyArray<Row>, names: ReadonlyMap<string, string>, prefix: string) =>
  rows.flatMap(({ numbers, peer }) =>
    Object.entries(numbers)
      .filter(([name]) => name.startsWith(prefix))
      .map(([name, { median }]) => ({
        ...{ peer: names.get(peer) ?? peer, facet: "", y: median },
        x: Number(name.slice(prefix.length))
      }))
  )

const windows = (rows: ReadonlyArray<Row>, names: ReadonlyMap<string, string>) =>
  rows.flatMap(({ peer, series }) =>
    Object.entries(series).flatMap(([facet, values]) =>
      values.map((y, at) => ({ peer: names.get(peer) ?? peer, facet, x: at + 1, y }))
    )
  )

const chart = (
  measure: string,
  title: string,
  rows: ReadonlyArray<Row>,
  names: ReadonlyMap<string, string>
): string => {
  switch (measure) {
    case "latency":
    case "half":
      return latencies(title, rows, names)
    case "idle":
      return bars(title, "statements a minute →", barsOf(rows, names, "perMinute"))
    case "processes":
    case "queues":
      return lines(
        title,
        { x: `${measure} →`, y: "↑ jobs a second", doubling: true },
        counted(rows, names, `${measure} `)
      )
    case "horizon":
      return lines(title, { x: "window of ten seconds →", y: "↑ jobs a second", doubling: false }, windows(rows, names))
    default:
      return bars(title, "jobs a second →", barsOf(rows, names, "perSecond"))
  }
}

/** By the name of the measure. */
export const charts = (entries: ReadonlyArray<Entry>): ReadonlyMap<string, string> => {
  const names = namesOf(entries)
  const drawn = measures.flatMap(({ name, title }) => {
    const rows = rowsOf(entries, name).filter(({ none }) => none === undefined)
    return rows.length === 0 ? [] : [[name, chart(name, title, rows, names)] as const]
  })
  return new Map(drawn)
}
