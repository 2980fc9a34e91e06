"""What a program does with the generated modules: enqueues in its own transaction, and completes what it claims."""
import os
import psycopg
from psycopg.rows import dict_row
import awa_producer as p
import awa_worker as w

URL = os.environ["DATABASE_URL"]
line = p.OrderV2Line(sku="ab", count=1)
order = p.OrderV2Args(
    at="2030-01-01T00:00:00.000Z", lines=[line, p.OrderV2Line(sku="cd", count=2, note="n")], first=None, prices={"a b": 1.5},
    state="new", tax_free=True, tree=p.OrderV2ArgsTree(name="r", class_=[p.OrderV2Tree(name="c", class_=[])]),
    part={"sku": "ab", "count": 1}, id="d9428888-122b-11e1-b85c-61cd3cbb3210")
assert p.OrderV2Args.load(order.dump()) == order
assert "import" not in order.dump() and "note" not in line.dump() and order.dump()["first"] is None

with psycopg.connect(URL) as tx:
    p.enqueue_book(tx, p.BookArgs(account=1, amount=5))
    tx.rollback()
    ids = [p.enqueue_book(tx, p.BookArgs(account=1, amount=5), validate=True), p.enqueue_order_v2(tx, order, queue="billing", validate=True),
           p.enqueue_ping(tx, [line], queue="billing", validate=True)]
try:
    with psycopg.connect(URL, row_factory=dict_row) as tx:
        p.enqueue_book(tx, p.BookArgs(account=1, amount=5000), validate=True)
    raise AssertionError("nobody looked at the payload")
except psycopg.errors.InvalidParameterValue as error:
    assert "args.amount: maximum 1000" in str(error), error

with psycopg.connect(URL, autocommit=True, row_factory=dict_row) as own:
    worker = own.execute("select awa.worker_register('stubs') as id").fetchone()["id"]
    for job in own.execute("select * from awa.worker_claim(%s, 'billing', 10)", (worker,)).fetchall():
        w.HANDLERS[job["kind"]](URL, job)
        print(job["kind"], ids.index(job["job_id"]), job["max_attempts"])
