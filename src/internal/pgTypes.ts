import type { CustomTypesConfig } from "pg"

const parse = (oid: number): ((text: string) => unknown) => {
  switch (oid) {
    case 16: // bool
      return (text) => text === "t"
    case 20: // int8: ids are bigint end to end
      return (text) => BigInt(text)
    case 21: // int2
    case 23: // int4
      return (text) => Number(text)
    case 114: // json
    case 3802: // jsonb
      return (text): unknown => JSON.parse(text)
    default:
      return (text) => text
  }
}

/** The runtime's own parsers: the driver's global ones are the application's to change. */
export const pgTypes: CustomTypesConfig = {
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- the driver's own signature
  getTypeParser: (oid: number): any => parse(oid)
}
