/**
 * Milliseconds on a clock that nobody sets: durations are measured on it, and it is compared with nothing but itself.
 *
 * @internal
 */
export const monotonicMillis = (): number => performance.now()
