/** What keeps a lane's order across a rotation. */
import type { Sabotage } from "../sabotages.js"

const order = "test/pg/fifo.test.ts > the order of a lane across a rotation >"

export const fifoSabotages: ReadonlyArray<Sabotage> = [
  {
    name: "take what began while the claim was under way",
    file: "020_claim.sql",
    from: "    v_below := pg_snapshot_xmax(pg_current_snapshot());\n",
    to: "",
    test: `${order} is kept when a late committer ends between a claim's look at its segment and the reading of the next`
  },
  {
    name: "choose the segment before there is a transaction id",
    file: "010_enqueue.sql",
    from: "begin\n  perform pg_current_xact_id();\n  loop",
    to: "begin\n  loop",
    test: `${order} is not lost between a writer's choice of its segment and its transaction id`
  }
]
