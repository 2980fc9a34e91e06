/** Sabotages of adoption and rebase. */
import type { Sabotage } from "../sabotages.js"

const adopt = "094_adopt.sql"
const rebase = "095_rebase.sql"
const ofAdopt = (test: string) => `test/pg/restore.test.ts > adopt_database > ${test}`
const ofProof = (test: string) => `test/pg/proof.test.ts > the proof of whose database this is > ${test}`
const ofRebase = (test: string) => `test/pg/restore.test.ts > rebase_storage > ${test}`

export const restore: ReadonlyArray<Sabotage> = [
  {
    name: "take the remembered proof for any database",
    file: "040_complete_job.sql",
    from: "and m.proven_path = pg_relation_filepath(m.tableoid) and not",
    to: "and m.proven_path is not null and not",
    test: ofProof("is none in a copy of the database, which refuses tokens until it is adopted")
  },
  {
    name: "take the remembered proof for any server",
    file: "040_complete_job.sql",
    from: "m.proven_start = pg_postmaster_start_time() and",
    to: "m.proven_start is not null and",
    test: ofProof("of another start refuses nothing, and accepts nothing")
  },
  {
    name: "prove a copy without a look",
    file: adopt,
    from: "where m.system_identifier = (select c.system_identifier from pg_control_system() c)\n        and m.database_oid = (select d.oid from pg_database d where d.datname = current_database())\n        and (",
    to: "where (",
    test: ofProof("is none in a copy of the database, which refuses tokens until it is adopted")
  },
  {
    name: "write the proof with every beat",
    file: "060_heartbeat.sql",
    from: "  perform {{schema}}.prove_identity();",
    to: "  update {{schema}}.meta m set proven_start = null;\n  perform {{schema}}.prove_identity();",
    test: ofProof("is written by the first beat that misses it, and by no other")
  },
  {
    name: "wait for the row of meta in a beat",
    file: adopt,
    from: "for no key update skip locked)",
    to: "for no key update)",
    test: ofProof("waits for nobody who holds the row of meta")
  },
  {
    name: "write the proof from under a snapshot",
    file: adopt,
    from: "  if current_setting('transaction_isolation') like 'read %' and exists (",
    to: "  if exists (",
    test: ofProof("fails no beat under a snapshot that is older than the row of meta")
  },
  {
    name: "adopt ids that lie ahead",
    file: adopt,
    from: "if v_stored.xid >= v_stored.xmax and",
    to: "if false and",
    test: ofAdopt("refuses stored transaction ids that lie ahead of the server's, also where the identity is the same")
  },
  {
    name: "adopt ids that are in use here",
    file: adopt,
    from: "not v_here.same_cluster and v_stored.xid >= v_stored.xmin\n",
    to: "false\n",
    test: ofAdopt("does not take another server's transaction id that is in use here for an old one")
  },
  {
    name: "adopt under an open transaction",
    file: adopt,
    from: "     or not v_here.same_database and {{schema}}.is_open_since(v_stored.xid) then",
    to: "     then",
    test: ofAdopt(
      "waits for transactions of this database that are older than what is stored: a cursor would hide theirs"
    )
  },
  {
    name: "adopt under a prepared transaction",
    file: adopt,
    from: "from pg_prepared_xacts p where p.database = current_database()) o",
    to: "from pg_prepared_xacts p where false) o",
    test: ofAdopt(
      "waits for transactions of this database that are older than what is stored: a cursor would hide theirs"
    )
  },
  {
    name: "believe every sequence",
    file: adopt,
    from: "where s.next <= s.stored limit 1;",
    to: "where false limit 1;",
    test: ofAdopt("refuses a copy whose sequence batch_seq stayed behind")
  },
  {
    name: "believe the segment cursor",
    file: adopt,
    from: "and s.generation = v_value / {{ring}} and s.state = 'open') then",
    to: "and s.state = 'open') then",
    test: ofAdopt("refuses a copy whose segment_cursor names no open segment of its generation")
  },
  {
    name: "judge history by its transaction ids",
    file: adopt,
    from: " filter (where s.state in ('open', 'sealed')) as xid",
    to: " as xid",
    test: ofRebase("keeps everything that has to run, in its order, and nothing else, in a database of its own")
  },
  {
    name: "forget attempts that were open",
    file: rebase,
    from: "  where b.n > 0\n",
    to: "  where b.n < 0\n",
    test: ofRebase("keeps everything that has to run, in its order, and nothing else, in a database of its own")
  },
  {
    name: "rebase what has a tombstone",
    file: rebase,
    from: "from {{schema}}.ready_tombstones_{{segment}} t\n  ), left_over",
    to: "from {{schema}}.ready_tombstones_{{segment}} t where false\n  ), left_over",
    test: ofRebase("keeps everything that has to run, in its order, and nothing else, in a database of its own")
  },
  {
    name: "order by another server's transaction ids",
    file: rebase,
    from: "l.written_by not in (select r.written_by from restorers r), l.xid, l.seq)",
    to: "l.xid, l.seq)",
    test: ofRebase("puts what was enqueued here before it behind what was restored")
  },
  {
    name: "leave the head where it was",
    file: rebase,
    from: "where e.position <= v_below returning",
    to: "where false returning",
    test: ofRebase("keeps everything that has to run, in its order, and nothing else, in a database of its own")
  },
  {
    name: "forget what a rebase moved",
    file: rebase,
    from: "order by e.xid desc, e.seq desc limit 1) last",
    to: "order by e.xid desc, e.seq desc limit 0) last",
    test: ofRebase("moves nothing twice when its own result is copied again")
  },
  {
    name: "rebase beside a runtime",
    file: rebase,
    from: "if v_beat.beat_at > v_now - p_staleness then",
    to: "if false then",
    test: ofRebase("is refused while a runtime may be at work, and where nothing is wrong")
  },
  {
    name: "rebase what is in order",
    file: rebase,
    from: "if v_fault is null and v_meta.system_identifier",
    to: "if false and v_meta.system_identifier",
    test: ofRebase("is refused while a runtime may be at work, and where nothing is wrong")
  },
  {
    name: "rebase beside an enqueue",
    file: rebase,
    from: "    perform pg_advisory_xact_lock(hashtextextended({{key segment}} || v_slot, 0));\n",
    to: "    null;\n",
    test: ofRebase("waits for whoever enqueues, no longer than its lock_timeout, and nobody's job is lost to it")
  },
  {
    name: "leave a sequence behind",
    file: rebase,
    from: "perform setval({{schema_text job_ids}}, s.newest) from (",
    to: "perform s.newest from (",
    test: ofRebase("sets sequences that stayed behind after what is stored")
  },
  {
    name: "end parked attempts",
    file: rebase,
    from: "from {{schema}}.leases l where l.state <> 'parked'\n  ), placed",
    to: "from {{schema}}.leases l\n  ), placed",
    test: ofRebase("ends leases of handlers that are gone, and keeps parked ones")
  },
  {
    name: "keep the fingerprint in a rebase",
    file: rebase,
    from: "set installation_id = v_id, fingerprint = (hashtextextended(v_id::text, 0) & 524287)::integer,",
    to: "set installation_id = v_id,",
    test: ofRebase("keeps everything that has to run, in its order, and nothing else, in a database of its own")
  },
  {
    name: "take what came last for the oldest",
    file: rebase,
    from: "order by s.state = 'free', s.generation loop",
    to: "order by s.generation loop",
    test: ofRebase("a crash in the middle is noticed, and loses nothing when it is run again")
  },
  {
    name: "empty a segment while another is free",
    file: rebase,
    from: "order by s.state = 'free' desc, case",
    to: "order by case",
    test: ofRebase("keeps everything that has to run, in its order, and nothing else, in a database of its own")
  }
]
