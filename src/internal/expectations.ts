import type { Token } from "./makeToken.js"

/** In which transaction a completion is expected, by attempt. */
const expected = new WeakMap<Token, bigint>()

/** @internal */
export const noteExpected = (token: Token, xid: bigint): void => void expected.set(token, xid)

/** @internal */
export const whereExpected = (token: Token): bigint | undefined => expected.get(token)
