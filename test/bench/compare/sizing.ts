/** How many jobs a peer gets, so that a run takes about as long for a slow one as for a quick one. */

export interface Trial {
  readonly jobs: number
  readonly seconds: number
}

const growth = 20
const trials = 5

/**
 * Runs trials, each larger than the one before, until one took so much longer than the first that the difference can be
 * believed, and answers the rate in jobs per second. What the first one took is mostly start-up, and is left out of it.
 */
export const findRate = async (
  believed: number,
  most: number,
  trial: (jobs: number) => Promise<Trial>
): Promise<number> => {
  const first = await trial(Math.min(most, 200))
  let last = first
  for (let tries = 1; tries < trials && last.jobs < most && last.seconds < first.seconds + believed; tries += 1) {
    last = await trial(nextTrial(first, last, believed, most))
  }
  return marginalRate(first, last)
}

/** What the jobs of the last trial beyond those of the first took; of a single trial, or one that was no slower, the whole. */
export const marginalRate = (first: Trial, last: Trial): number =>
  last.jobs > first.jobs && last.seconds > first.seconds
    ? (last.jobs - first.jobs) / (last.seconds - first.seconds)
    : last.jobs / last.seconds

/** What would take half as long again as is needed, but neither less than twice nor more than twenty times as many as before. */
export const nextTrial = (first: Trial, last: Trial, believed: number, most: number): number => {
  const needed = marginalRate(first, last) * believed * 1.5
  return Math.min(most, Math.round(last.jobs * Math.min(growth, Math.max(2, needed / last.jobs))))
}

/** Jobs for a run of so many seconds, in whole hundreds. */
export const jobsFor = (rate: number, seconds: number, most: number): number =>
  Math.min(most, Math.max(200, Math.round((rate * seconds) / 100) * 100))

/** The highest of the rates that was kept up: doubled from the first on until one is not. */
export const findSustained = async (
  first: number,
  most: number,
  keepsUp: (perSecond: number) => Promise<boolean>
): Promise<number> => {
  let sustained = 0
  for (let rate = first; rate <= most; rate *= 2) {
    if (!(await keepsUp(rate))) break
    sustained = rate
  }
  return sustained
}
