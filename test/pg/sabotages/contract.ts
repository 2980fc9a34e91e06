/** The sabotages of the public contract and of the calls for workers in other languages. */
import type { Sabotage } from "../sabotages.js"

const file = "068_workers.sql"
const inContract = "test/pg/contract.test.ts"
const inStates = "test/pg/contractStates.test.ts > the SQLSTATEs of schema/contract.json"

const kinds = "012_kinds.sql"
const inKinds = "test/pg/kinds.test.ts"
const inBounds = "test/pg/kindsBounds.test.ts"

export const contractSabotages: ReadonlyArray<Sabotage> = [
  {
    name: "let a default of the contract drift",
    file: "010_enqueue.sql",
    from: "insert_job(kind text, args jsonb, queue text default 'default'",
    to: "insert_job(kind text, args jsonb, queue text default 'main'",
    test: `${inContract} > schema/contract.json > is what is installed: one form of each, with exactly these arguments, defaults and columns`
  },
  {
    name: "add a column to what a claim answers",
    file,
    from: "  retry_ms integer)\nlanguage",
    to: "  retry_ms integer, more integer)\nlanguage",
    test: `${inContract} > schema/contract.json > is what is installed: one form of each, with exactly these arguments, defaults and columns`
  },
  {
    name: "let a worker write what only maintenance may",
    file,
    from: "'discarded', 'dead_lettered', 'gated')\n      then",
    to: "'discarded', 'dead_lettered', 'rescued', 'gated', 'materialized')\n      then",
    test: `${inContract} > schema/contract.json > lists the outcomes that a worker may report, and no other is taken`
  },
  {
    name: "ignore unknown details of an end",
    file,
    from: "  where k.key not in ('error', 'delay_ms', 'reason', 'progress')",
    to: "  where false",
    test: `${inStates} > worker_close WA005`
  },
  {
    name: "retry at once where nobody says when",
    file,
    from: "when e.outcome in ('retried', 'snoozed') and",
    to: "when false and",
    test: `${inContract} > the keys > of an attempt's end have rules, and the message names the attempt, the key and the rule`
  },
  {
    name: "store what is null in an end",
    file,
    from: "filter (where jsonb_typeof(d.value) <> 'null'), '{}')",
    to: ", '{}')",
    test: `${inContract} > the keys > that are null in an attempt's end say nothing: no error is stored, and progress stays`
  },
  {
    name: "take any object for a token",
    file,
    from: "then (a.e ->> f.name)::numeric > f.most else true end)",
    to: "then (a.e ->> f.name)::numeric > f.most else false end)",
    test: `${inContract} > a worker in another language > that hands back what is no token is told which, and nothing is done for the others`
  },
  {
    name: "answer busy as nothing to do",
    file,
    from: "where c.job_id is not null or not exists (select from c where c.job_id is not null);",
    to: "where c.job_id is not null;",
    test: `${inContract} > a worker in another language > is told when to ask again where busy is not empty, in a row without an attempt`
  },
  {
    name: "tell a worker's own end from another's by nothing",
    file,
    from: "return {{schema}}.settle_attempt(v_token.receipts[1],",
    to: "return {{schema}}.settle_attempt((random() * 1e15)::bigint,",
    test: `${inContract} > a worker in another language > hands back the row of its claim as it came, and is told what became of each attempt, in order`
  },
  {
    name: "call an attempt lost that is only busy",
    file,
    from: "where h.outcome is distinct from 'busy'",
    to: "where h.outcome is distinct from 'completed'",
    test: `${inContract} > a worker in another language > hands back the row of its claim as it came, and is told what became of each attempt, in order`
  },
  {
    name: "leave the calls for other languages to tables' privileges",
    file,
    from: "returns table (job_id bigint, run_lease bigint, status text, outcome text, closed_at timestamptz)\nlanguage plpgsql volatile security definer",
    to: "returns table (job_id bigint, run_lease bigint, status text, outcome text, closed_at timestamptz)\nlanguage plpgsql volatile",
    test: `${inContract} > a worker in another language > needs EXECUTE on these functions, USAGE on the schema, and no table`
  },
  {
    name: "register a worker on a database that was restored",
    file,
    from: "if {{schema}}.adopt_database() = 'refused' then",
    to: "if false then",
    test: `${inStates} > worker_register 55000`
  },
  {
    name: "look at no payload",
    file: "010_enqueue.sql",
    from: "  if v_validate then\n    perform",
    to: "  if false then\n    perform",
    test: `${inKinds} > validate > lets in what fits the registered schema, and names the path and the rule of what does not`
  },
  {
    name: "forget unique beside validate",
    file: "010_enqueue.sql",
    from: "(not v_validate or exists (select",
    to: "(not v_validate or false and exists (select",
    test: `${inKinds} > validate > looks at nothing of a job that does not ask, and beside unique only at those that do`
  },
  {
    name: "let in any property",
    file: kinds,
    from: "if v_one.s = 'false' then",
    to: "if false then",
    test: `${inKinds} > validate > agrees with the schema that the payload was exported from, on values that fit and on values that do not`
  },
  {
    name: "take every number for an integer",
    file: kinds,
    from: "and p_value::numeric = trunc(p_value::numeric)) then",
    to: "and p_value is not null) then",
    test: `${inKinds} > validate > lets in what fits the registered schema, and names the path and the rule of what does not`
  },
  {
    name: "let every alternative begin anew",
    file: kinds,
    from: "      p_left := v_found.p_left;\n      if v_found.fault is null then",
    to: "      if v_found.fault is null then",
    test: `${inKinds} > validate > has an end, however deep a value is and however a schema branches`
  },
  {
    name: "register what leads back to itself",
    file: kinds,
    from: "where w.steps > 64 order by",
    to: "where false order by",
    test: `${inKinds} > register_kinds > refuses a schema that cannot be one, by its path, and registers none of the call`
  },
  {
    name: "pass over what is not checked",
    file: kinds,
    from: "where c.is_unchecked)",
    to: "where false)",
    test: `${inKinds} > register_kinds > says of each what is new, what has changed, and what of its schema is not checked`
  },
  {
    name: "price a large value like a small one",
    file: kinds,
    from: "- pg_column_size(p_value) / 512 - ",
    to: "- ",
    test: `${inBounds} > a check > counts its steps by what is looked at, not by the values alone`
  },
  {
    name: "price a large schema like a small one",
    file: kinds,
    from: " - pg_column_size(p_schema) / 1024\n",
    to: "\n",
    test: `${inBounds} > a check > counts its steps by what is looked at, not by the values alone`
  },
  {
    name: "price a long required like a short one",
    file: kinds,
    from: "jsonb_array_length(p_schema -> 'required') / 16 else",
    to: "0 else",
    test: `${inBounds} > a check > counts its steps by what is looked at, not by the values alone`
  },
  {
    name: "compare with a long enum for nothing",
    file: kinds,
    from: "then jsonb_array_length(p_schema -> 'enum') else 0 end",
    to: "then 0 else 0 end",
    test: `${inBounds} > a check > counts its steps by what is looked at, not by the values alone`
  },
  {
    name: "take what a list in an enum contains for one of its own",
    file: kinds,
    from: "when v_type in ('array', 'object') then exists",
    to: "when v_type = 'object' then exists",
    test: `${inBounds} > a check > finds a plain value, a list and an object in an enum by what they are`
  },
  {
    name: "follow references until the stack is used up",
    file: kinds,
    from: "if p_nested > 256 then",
    to: "if false then",
    test: `${inBounds} > a check > says that references and alternatives go too deep, and does not use up the server's stack`
  },
  {
    name: "refuse what a pattern may name",
    file: kinds,
    from: "case when not p_schema ? 'patternProperties' then p_schema -> 'additionalProperties' end",
    to: "p_schema -> 'additionalProperties'",
    test: `${inBounds} > a check > does not take for additional what a pattern may name`
  },
  {
    name: "say nothing of additional properties beside a pattern",
    file: kinds,
    from: "or (k.key = 'additionalProperties' and n.s ? 'patternProperties')",
    to: "or false",
    test: `${inBounds} > a check > does not take for additional what a pattern may name`
  },
  {
    name: "compare the names of references as they are written",
    file: kinds,
    from: "select distinct n.def as a, {{schema}}.ref_name(n.s ->> '$ref') as b",
    to: "select distinct replace(replace(n.def, '~', '~0'), '/', '~1') as a, substr(n.s ->> '$ref', 9) as b",
    test: `${inBounds} > register_kinds > refuses references that lead back or on for long, however their names are written`
  },
  {
    name: "register references that lead on for long",
    file: kinds,
    from: "where w.steps > 64 order",
    to: "where w.steps > 64 and exists (select from step s where s.a = s.b) order",
    test: `${inBounds} > register_kinds > refuses references that lead back or on for long, however their names are written`
  },
  {
    name: "register any number of definitions",
    file: kinds,
    from: "jsonb_object_keys(v_defs)) > 1000",
    to: "jsonb_object_keys(v_defs)) > 5000",
    test: `${inBounds} > register_kinds > takes no more definitions, kinds, bytes and longer keys than it says`
  },
  {
    name: "register any number of kinds",
    file: kinds,
    from: "jsonb_array_length(kinds) > 1000",
    to: "jsonb_array_length(kinds) > 5000",
    test: `${inBounds} > register_kinds > takes no more definitions, kinds, bytes and longer keys than it says`
  },
  {
    name: "register any number of bytes",
    file: kinds,
    from: " > 16777216 then",
    to: " > 167772160 then",
    test: `${inBounds} > register_kinds > takes no more definitions, kinds, bytes and longer keys than it says`
  },
  {
    name: "register keys of any length",
    file: kinds,
    from: "where octet_length(m.name) > 255",
    to: "where octet_length(m.name) > 25500",
    test: `${inBounds} > register_kinds > takes no more definitions, kinds, bytes and longer keys than it says`
  },
  {
    name: "copy a path to all that is below it",
    file: kinds,
    from: "when char_length(n.path) > 200 then n.path else left(n.path || c.step, 201) end",
    to: "when false then n.path else n.path || c.step end",
    test: `${inBounds} > register_kinds > cuts the path of a place that is far down`
  },
  {
    name: "look at each schema twice",
    file: kinds,
    from: "array(select jsonb_array_elements_text(v_looks[k.ord]))",
    to: "(select s.unchecked from {{schema}}.schema_look(k.e -> 'schema') s)",
    test: `${inBounds} > register_kinds > looks at each schema once, and compiles nothing for it`
  },
  {
    name: "note nothing of registered kinds",
    file: kinds,
    from: "perform {{schema}}.record_audit('register_kinds', (",
    to: "perform coalesce('register_kinds', (",
    test: `${inBounds} > register_kinds > is noted among what operators asked for, with what became of each`
  },
  {
    name: "take a list for a queue's name",
    file: kinds,
    from: "when coalesce(jsonb_typeof(v_kind.e -> 'queue'), 'null') not in",
    to: "when coalesce(jsonb_typeof(v_kind.e -> 'nothing'), 'null') not in",
    test: `${inKinds} > register_kinds > names the kind, the field and the rule that it breaks`
  },
  {
    name: "take a text for a priority",
    file: kinds,
    from: "when coalesce(jsonb_typeof(v_kind.e -> 'priority'), 'null') not in",
    to: "when coalesce(jsonb_typeof(v_kind.e -> 'nothing'), 'null') not in",
    test: `${inKinds} > register_kinds > names the kind, the field and the rule that it breaks`
  },
  {
    name: "take a text for a number of attempts",
    file: kinds,
    from: "when coalesce(jsonb_typeof(v_kind.e -> 'max_attempts'), 'null') not in",
    to: "when coalesce(jsonb_typeof(v_kind.e -> 'nothing'), 'null') not in",
    test: `${inKinds} > register_kinds > names the kind, the field and the rule that it breaks`
  },
  {
    name: "let the last of two of one kind win",
    file: kinds,
    from: "having count(*) > 1",
    to: "having count(*) > 1000",
    test: `${inKinds} > register_kinds > names the kind, the field and the rule that it breaks`
  },
  {
    name: "compile the look at each schema",
    file: kinds,
    from: "set jit = off\n",
    to: "",
    test: `${inBounds} > register_kinds > looks at each schema once, and compiles nothing for it`
  }
]
