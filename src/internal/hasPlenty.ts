import type { Waiting } from "../InFlight.js"

/** @internal */
export const hasPlenty = ({ count, plenty }: Waiting): boolean => plenty > 0 && count >= plenty
