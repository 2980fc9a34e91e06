/** What is said about series of measurements. */

export const quantile = (values: ReadonlyArray<number>, q: number): number => {
  const sorted = [...values].sort((a, b) => a - b)
  const at = (sorted.length - 1) * q
  const low = sorted[Math.floor(at)] ?? Number.NaN
  const high = sorted[Math.ceil(at)] ?? Number.NaN
  return low + (high - low) * (at - Math.floor(at))
}

export const median = (values: ReadonlyArray<number>): number => quantile(values, 0.5)

export const sum = (values: ReadonlyArray<number>): number => values.reduce((total, value) => total + value, 0)

export const mean = (values: ReadonlyArray<number>): number => sum(values) / values.length

/** Two-sided 95 % quantiles of Student's t by degrees of freedom, from 1. */
const students = [
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12, 2.11,
  2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042
]

const student = (freedom: number): number => students[freedom - 1] ?? 1.96 + 2.5 / freedom

export interface Interval {
  readonly estimate: number
  readonly low: number
  readonly high: number
}

const interval = (estimate: number, error: number, freedom: number): Interval => {
  const reach = freedom < 1 ? Number.POSITIVE_INFINITY : student(freedom) * error
  return { estimate, low: estimate - reach, high: estimate + reach }
}

/** The least-squares slope of y over x with its 95 % confidence interval. It takes windows for independent of each other. */
export const slope = (points: ReadonlyArray<readonly [number, number]>): Interval => {
  const n = points.length
  const meanX = mean(points.map(([x]) => x))
  const meanY = mean(points.map(([, y]) => y))
  const spread = sum(points.map(([x]) => (x - meanX) ** 2))
  const estimate = sum(points.map(([x, y]) => (x - meanX) * (y - meanY))) / spread
  const left = sum(points.map(([x, y]) => (y - meanY - estimate * (x - meanX)) ** 2))
  return interval(estimate, Math.sqrt(left / Math.max(1, n - 2) / spread), n - 2)
}

/** The mean with its 95 % confidence interval. */
export const meanInterval = (values: ReadonlyArray<number>): Interval => {
  const centre = mean(values)
  const variance = sum(values.map((value) => (value - centre) ** 2)) / Math.max(1, values.length - 1)
  return interval(centre, Math.sqrt(variance / values.length), values.length - 1)
}

/**
 * A histogram of milliseconds whose buckets are an eighth of a doubling wide (9 %): small enough to be sent every moment, and
 * those of several moments can be added.
 */
export type Histogram = Readonly<Record<string, number>>

export const bucketOf = (millis: number): string => String(Math.round(8 * Math.log2(Math.max(0.1, millis))))

export const addHistograms = (all: ReadonlyArray<Histogram>): Histogram => {
  const total: Record<string, number> = {}
  for (const histogram of all) {
    for (const [bucket, count] of Object.entries(histogram)) total[bucket] = (total[bucket] ?? 0) + count
  }
  return total
}

export const histogramQuantile = (histogram: Histogram, q: number): number => {
  const buckets = Object.entries(histogram)
    .map(([bucket, count]) => [Number(bucket), count] as const)
    .sort(([a], [b]) => a - b)
  let left = q * sum(buckets.map(([, count]) => count))
  for (const [bucket, count] of buckets) {
    left -= count
    if (left <= 0) return 2 ** (bucket / 8)
  }
  return Number.NaN
}
