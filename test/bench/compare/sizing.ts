/** How many jobs a peer gets, so that a run takes about as long for a slow one as for a quick one. */

export interface Trial {
  readonly jobs: number
  readonly seconds: number
}

const growth = 20
const trials = 4

/**
 * Runs trials, each larger than the one before, until one took long enough to be believed, and answers the rate of the last one
 * in jobs per second.
 */
export const findRate = async (
  believed: number,
  most: number,
  trial: (jobs: number) => Promise<Trial>
): Promise<number> => {
  let jobs = Math.min(most, 200)
  for (let tries = 1; ; tries += 1) {
    const tried = await trial(jobs)
    const rate = tried.jobs / tried.seconds
    if (tried.seconds >= believed || tries === trials || jobs >= most) return rate
    jobs = nextTrial(jobs, rate, believed, most)
  }
}

/** What would take half as long again as is needed, but not too much more than before: a first rate is mostly start-up. */
export const nextTrial = (jobs: number, rate: number, believed: number, most: number): number =>
  Math.min(most, Math.ceil(Math.max(jobs * 2, Math.min(jobs * growth, rate * believed * 1.5))))

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
