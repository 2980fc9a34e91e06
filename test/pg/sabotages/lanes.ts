/** The sabotages of lanes, tombstones and the ring's turning. */
import type { Sabotage } from "../sabotages.js"

export const lanes: ReadonlyArray<Sabotage> = [
  {
    name: "do not age",
    file: "020_claim.sql",
    from: "window in_order as (order by l.at + (l.p - 1) * v_settings.aging, l.p)\n    order by 2, 1 limit 1",
    to: "window in_order as (order by l.p)\n    order by 1 limit 1",
    test: "test/pg/lanes.test.ts > priorities > age: an entry of priority p counts as if it had come (p - 1) times the queue's aging later"
  },
  {
    name: "take by arrival alone",
    file: "020_claim.sql",
    from: "coalesce(q.aging, interval '1 minute') as aging",
    to: "interval '0' as aging",
    test: "test/pg/lanes.test.ts > priorities > come in their order while nothing has waited"
  },
  {
    name: "give one lane the whole call",
    file: "020_claim.sql",
    from: "v_until := v_second - (v_p - 1) * v_settings.aging;",
    to: "v_until := null;",
    test: "test/pg/lanes.test.ts > priorities > take of a lane only what comes before the next lane's first, but a quarter of the call at least"
  },
  {
    name: "count the rate of one segment",
    file: "020_claim.sql",
    from: "v_used := v_used + v_n;",
    to: "v_used := v_n;",
    test: "test/pg/lanes.test.ts > the rate of a queue > counts lanes, segments and heads together, and is one claimer's at a time"
  },
  {
    name: "count the rate two at a time",
    file: "020_claim.sql",
    from: "if not pg_try_advisory_xact_lock(hashtextextended({{key rate}}",
    to: "if false and not pg_try_advisory_xact_lock(hashtextextended({{key rate}}",
    test: "test/pg/lanes.test.ts > the rate of a queue > counts lanes, segments and heads together, and is one claimer's at a time"
  },
  {
    name: "claim what has a tombstone",
    file: "020_claim.sql",
    from: "v_tombs := exists (",
    to: "v_tombs := false and exists (",
    test: "test/pg/spill.test.ts > an entry with a tombstone > is passed by the claim, wherever it stands"
  },
  {
    name: "stop among tombstones",
    file: "020_claim.sql",
    from: "exit when v_cut < f.looked or f.looked < v_step;",
    to: "exit;",
    test: "test/pg/spill.test.ts > an entry with a tombstone > does not stand before what is behind it, however many there are"
  },
  {
    name: "stop among the tombstones of a late transaction",
    file: "020_claim.sql",
    from: "exit when f.looked < v_step;  -- read to the end as well",
    to: "exit;",
    test: "test/pg/spill.test.ts > an entry with a tombstone > of a transaction that committed late is passed as well"
  },
  {
    name: "read all tombstones in each step",
    file: "020_claim.sql",
    from: "t.xid = n.xid and t.seq = n.seq offset 0) as alive",
    to: "t.xid = n.xid and t.seq = n.seq) as alive",
    test: "test/pg/spill.test.ts > an entry with a tombstone > by the thousand is asked for entry by entry, 20 wanted at a time"
  },
  {
    name: "go on in a newer segment while tombstones are left in this one",
    file: "020_claim.sql",
    from: "        v_more := v_taken.o_more;\n        exit when v_more;\n",
    to: "        v_more := v_taken.o_more;\n",
    test: "test/pg/spill.test.ts > an entry with a tombstone > by the ten thousand stands before what is in a newer segment as well, as long as something may be behind it"
  },
  {
    name: "pass all tombstones in one claim",
    file: "020_claim.sql",
    from: "    o_more := v_dead >= 10000;\n    v_step",
    to: "    v_step",
    test: "test/pg/spill.test.ts > an entry with a tombstone > by the ten thousand is passed within a claim's time, 20 wanted at a time"
  },
  {
    name: "pass all tombstones of a late transaction in one claim",
    file: "020_claim.sql",
    from: "      o_more := v_dead >= 10000;\n      if",
    to: "      if",
    test: "test/pg/spill.test.ts > an entry with a tombstone > by the ten thousand of a late transaction is passed as well, 20 wanted at a time"
  },
  {
    name: "say nothing of what stands behind many tombstones",
    file: "020_claim.sql",
    from: "      v_busy := true;\n      exit;\n    end if;\n    exit when v_second",
    to: "      exit;\n    end if;\n    exit when v_second",
    test: "test/pg/spill.test.ts > an entry with a tombstone > by the ten thousand is passed within a claim's time, 20 wanted at a time"
  },
  {
    name: "take all that a step among tombstones has read",
    file: "020_claim.sql",
    from: "      where c.turns = p_limit - v_have;",
    to: "      where false;",
    test: "test/pg/spill.test.ts > an entry with a tombstone > costs no live one its turn, whatever is buried and however many are wanted"
  },
  {
    name: "take all that a step among a late transaction's tombstones has read",
    file: "020_claim.sql",
    from: "      where e.turns <= p_limit - v_have;",
    to: "      where true;",
    test: "test/pg/spill.test.ts > an entry with a tombstone > of a transaction that committed late is passed as well"
  },
  {
    name: "hold a segment for its tombstones",
    file: "074_ring.sql",
    from: "t.xid = r.xid and t.seq = r.seq))\n       or exists (",
    to: "false))\n       or exists (",
    test: "test/pg/spill.test.ts > an entry with a tombstone > keeps its segment from nothing: drained and pruned with it"
  },
  {
    name: "call pending entries claimed",
    file: "020_claim.sql",
    from: "where n.x = p_xid and p_seq > n.s)",
    to: "where false)",
    test: "test/pg/spill.test.ts > an entry with a tombstone > and the cursor agree on what is claimed"
  },
  {
    name: "hold a segment for what a late beat left",
    file: "074_ring.sql",
    from: "where a.claim_slot & 255 = {{segment}} and c.found is null)",
    to: "where a.claim_slot & 255 = {{segment}})",
    test: "test/pg/rotation.test.ts > rotation > reclaims a segment in which a beat came after the close"
  },
  {
    name: "spill a ring that has room",
    file: "074_ring.sql",
    from: "where s.state = 'free') * 4 > {{ring}} then",
    to: "where s.state = 'free') * 0 > {{ring}} then",
    test: "test/pg/spill.test.ts > a spill > moves what nobody claimed to the lane's head, which is claimed before the ring, in order"
  },
  {
    name: "forget the head",
    file: "020_claim.sql",
    from: "    if v_from[v_p] is not null then",
    to: "    if false then",
    test: "test/pg/spill.test.ts > a spill > moves what nobody claimed to the lane's head, which is claimed before the ring, in order"
  },
  {
    name: "go on in the next segment before the turn of another lane",
    file: "020_claim.sql",
    from: "exit when v_until is not null and v_took > 0;",
    to: "",
    test: "test/pg/lanes.test.ts > priorities > keep their own order from one segment to the next, whatever another lane has in between"
  },
  {
    name: "look for heads before the lanes' locks only",
    file: "020_claim.sql",
    from: "continue when v_again.head_to is distinct from v_to[v_p];",
    to: "",
    test: "test/pg/spill.test.ts > a spill > between a claim's look at the heads and its lock does not turn a lane's order"
  },
  {
    name: "spill a lane without its lock",
    file: "074_ring.sql",
    from: "if pg_try_advisory_xact_lock(hashtextextended({{key lane}}",
    to: "if true or pg_try_advisory_xact_lock(hashtextextended({{key lane}}",
    test: "test/pg/spill.test.ts > a spill > waits for nobody: a lane that is claimed from is left for the next time"
  },
  {
    name: "spill out of order",
    file: "074_ring.sql",
    from: "      order by u.i) m\n",
    to: "      order by u.i desc) m\n",
    test: "test/pg/spill.test.ts > a spill > keeps the order of many spills and claims between them, priorities apart"
  },
  {
    name: "forget how far a head was read",
    file: "074_ring.sql",
    from: "set first_position = v_position\n",
    to: "set first_position = h.first_position\n",
    test: "test/pg/spill.test.ts > a spill > an emptied head is jumped over, also when the segments that knew how far it was read are gone"
  },
  {
    name: "rotate a burst through the ring",
    file: "074_ring.sql",
    from: "if (v_free - 1) * v_age < v_wait then",
    to: "if false then",
    test: "test/pg/spill.test.ts > a ring that does not turn > by size only while its free slots cover the history that must be kept"
  },
  {
    name: "blame no prepared transaction",
    file: "074_ring.sql",
    from: "left join pg_prepared_xacts p on p.transaction = t.transactionid\n    where l.locktype = 'advisory'",
    to: "left join pg_prepared_xacts p on false\n    where l.locktype = 'advisory'",
    test: "test/pg/spill.test.ts > a ring that does not turn > names who keeps it: writers, prepared ones too, lanes, attempts, history, locks"
  },
  {
    name: "take the end of the rate for the end of the queue",
    file: "020_claim.sql",
    from: "if v_rate < p_limit and v_left <= 0 and v_retry is null then",
    to: "if false then",
    test: "test/pg/lanes.test.ts > the rate of a queue > is the fleet's: claims of the last interval are its account, whoever made them"
  },
  {
    name: "lose the answer with the first attempt after it",
    file: "030_close.sql",
    from: "case when e.callback_result is not null then jsonb_build_object('callback_result', e.callback_result) else '{}' end",
    to: "'{}'",
    test: "test/pg/callbacks.test.ts > a parked attempt > keeps its answer until the job has ended, however the attempts end that saw it"
  },
  {
    name: "lose the answer in a lease",
    file: "065_leases.sql",
    from: "when e.resumed_with is not null then jsonb_build_object('callback_result', e.resumed_with) else '{}' end",
    to: "else '{}' end",
    test: "test/pg/callbacks.test.ts > a parked attempt > keeps its answer until the job has ended, however the attempts end that saw it"
  },
  {
    name: "keep a key past the first claim",
    file: "020_claim.sql",
    from: "  if v_read.o_key_count > 0 then\n    perform {{schema}}.release_unique(v_read.o_keys, v_read.o_job_ids, 1::smallint);\n",
    to: "  if v_read.o_key_count > 0 then\n",
    test: "test/pg/unique.test.ts > the presets > keep a twin out of a job that is running, or not, as they say"
  },
  {
    name: "keep the key of a completed job",
    file: "030_close.sql",
    from: "  if v_keys is not null then\n    perform {{schema}}.release_unique(v_keys, v_holders, 2::smallint);\n  end if;\nend $$;",
    to: "end $$;",
    test: "test/pg/unique.test.ts > the presets > keep a twin out of a job that is completed, or not, as they say"
  },
  {
    name: "keep the lanes of the segment's last turn",
    file: "074_ring.sql",
    from: "  delete from {{schema}}.segment_lanes l where l.slot = v_next.slot;\n",
    to: "",
    test: "test/pg/segments.test.ts > a sealed segment > tells which lanes it has when no writer can reach it any more, and only until it is opened again"
  },
  {
    name: "tell a segment's lanes while a writer is in flight",
    file: "074_ring.sql",
    from: "    if not pg_try_advisory_xact_lock(hashtextextended({{key segment}} || v_slot, 0)) then\n      continue;  -- a transaction that enqueued here is still open\n    end if;",
    to: "    if not pg_try_advisory_xact_lock(hashtextextended({{key segment}} || v_slot, 0)) then\n      insert into {{schema}}.segment_lanes select v_slot, jsonb_object_agg(r.queue, 1 << (r.priority - 1)) from {{schema}}.ready_entries r where r.segment = v_slot on conflict do nothing;\n      continue;\n    end if;",
    test: "test/pg/segments.test.ts > a sealed segment > tells which lanes it has when no writer can reach it any more, and only until it is opened again"
  },
  {
    name: "look into every segment for every lane",
    file: "020_claim.sql",
    from: "case when l.lanes is null then 15 else 0 end",
    to: "15",
    test: "test/pg/segments.test.ts > a sealed segment > tells which lanes it has when no writer can reach it any more, and only until it is opened again"
  },
  {
    name: "claim alone: forget who was in progress below the cursor",
    file: "020_claim.sql",
    from: "where x < t.xids[t.n] order by x) as xids",
    to: "where false) as xids",
    test: "test/pg/cursor.test.ts > one segment > a late committer > behind the cursor is read once it has ended, and only once"
  },
  {
    name: "claim alone: pass what has ended since",
    file: "020_claim.sql",
    from: " and l.pending <@ l.in_progress\n",
    to: "\n",
    test: "test/pg/cursor.test.ts > one segment > a late committer > that was read in part is continued where the claim stopped"
  },
  {
    name: "claim alone: do not look for what has ended since",
    file: "020_claim.sql",
    from: "where not w.x = any (n.low)) or exists (",
    to: "where false) or exists (",
    test: "test/pg/cursor.test.ts > one segment > a late committer > behind the cursor is read once it has ended, and only once"
  },
  {
    name: "claim alone: take every transaction that has ended for work",
    file: "020_claim.sql",
    from: "where e.queue = p_queue and e.priority = p.p and e.xid = w.x and e.seq > w.s limit 1) e",
    to: "limit 1) e",
    test: "test/pg/claim.test.ts > claim > one segment: takes no lane for one with work because a transaction has ended that wrote elsewhere"
  },
  {
    name: "claim alone: take what came after the look",
    file: "020_claim.sql",
    from: "e.xid < least(g.high, v_below) and",
    to: "e.xid < g.high and",
    test: "test/pg/claim.test.ts > claim > one segment: takes nothing that came after its look, in which another lane's entry did not stand yet"
  },
  {
    name: "claim alone: move the cursor by one entry",
    file: "020_claim.sql",
    from: "t.xids[t.n], t.seqs[t.n]",
    to: "t.xids[1], t.seqs[1]",
    test: "test/pg/cursor.test.ts > one segment > the order of a lane > inside one call is the order of its jobs"
  },
  {
    name: "claim alone: order a lane by seq",
    file: "020_claim.sql",
    from: "order by e.xid, e.seq limit p_limit) r",
    to: "order by e.seq limit p_limit) r",
    test: "test/pg/cursor.test.ts > one segment > the order of a lane > is that of the transactions, whatever numbers their sessions had cached"
  },
  {
    name: "claim alone: walk uncommitted entries",
    file: "020_claim.sql",
    from: "select '0'::xid8 || s.xip as low, s.xip || pg_snapshot_xmax(pg_current_snapshot()) as high",
    to: "select '{0}'::xid8[] as low, array[pg_snapshot_xmax(pg_current_snapshot())] as high",
    test: "test/pg/cursor.test.ts > one segment > uncommitted entries cost an empty poll a probe, and hide nothing that stands behind them"
  },
  {
    name: "claim alone: without the lane's lock",
    file: "020_claim.sql",
    from: "if not pg_try_advisory_xact_lock(hashtextextended({{key lane}} || v_priority || '/' || p_queue, 0)) then",
    to: "if false then",
    test: "test/pg/claim.test.ts > claim > one segment: says of a lane that another claim holds that it is busy, and of an empty one nothing"
  },
  {
    name: "claim alone: take busy for empty",
    file: "020_claim.sql",
    from: "    v_busy := v_taken.o_busy;\n",
    to: "    if v_taken.o_busy then return; end if;\n",
    test: "test/pg/claim.test.ts > claim > one segment: says of a lane that another claim holds that it is busy, and of an empty one nothing"
  },
  {
    name: "claim alone: as if no other lane had anything",
    file: "020_claim.sql",
    from: "if o_lanes is distinct from 1 then",
    to: "if o_lanes = 0 then",
    test: "test/pg/claim.test.ts > claim > takes by priority, then in order, up to its limit"
  },
  {
    name: "claim alone: in spite of tombstones",
    file: "020_claim.sql",
    from: "where not exists (select from {{schema}}.ready_tombstones_{{segment}} t where t.queue = p_queue and t.priority = v_priority)",
    to: "where true",
    test: "test/pg/spill.test.ts > an entry with a tombstone > is passed by the claim, wherever it stands"
  },
  {
    name: "claim alone: in spite of a head",
    file: "020_claim.sql",
    from: "select case when not exists (select from {{schema}}.spill_heads h where h.queue = p_queue) then count(*) end",
    to: "select count(*)",
    test: "test/pg/spill.test.ts > a spill > leaves what it moved to a claim that finds nothing in the ring, and one segment"
  },
  {
    name: "claim alone: keep a key past the first claim",
    file: "020_claim.sql",
    from: "where t.n > 0 and t.keys = 0\n",
    to: "where t.n > 0\n",
    test: "test/pg/unique.test.ts > the presets > keep a twin out of a job that is running, or not, as they say"
  },
  {
    name: "claim alone: by the transaction's start",
    file: "020_claim.sql",
    from: "(select clock_timestamp() as at offset 0) c\n    cross join lateral",
    to: "(select now() as at offset 0) c\n    cross join lateral",
    test: "test/pg/settings.test.ts > a transaction opened two seconds ago reckons from the clock, not from its start"
  },
  {
    name: "claim alone: forget the deadline of the queue",
    file: "020_claim.sql",
    from: "c.at, c.at + p_deadline, p_runtime_id, t.n",
    to: "c.at, null, p_runtime_id, t.n",
    test: "test/pg/claim.test.ts > claim > one segment: takes nothing of a paused queue, and gives the queue's deadline to its attempts"
  },
  {
    name: "claim alone: of a queue that was paused meanwhile",
    file: "020_claim.sql",
    from: "\n      and not exists (select from {{schema}}.queues q where q.queue = p_queue and q.paused)",
    to: "",
    test: "test/pg/claim.test.ts > claim > alone takes for granted only what holds under the lane's lock"
  }
]
