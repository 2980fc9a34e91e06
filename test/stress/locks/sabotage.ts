import { sabotages } from "../../pg/sabotages.js"

const chosen = process.env["AWA_SABOTAGE"]

/** The sabotage that AWA_SABOTAGE names, to see how soon it is found. */
export const edit = chosen === undefined ? undefined : sabotages.find(({ name }) => name === chosen)
if (chosen !== undefined && edit === undefined) throw new Error(`no sabotage is called ${chosen}`)
