import { randomBytes } from "node:crypto"

/** @internal The id of a flush, kept over its retries: what closed an attempt is told by it. */
export const newFlushId = (): string => String(randomBytes(8).readBigInt64BE() & 0x7fffffffffffffffn)
