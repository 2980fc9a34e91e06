"""A reconciling worker in pure psycopg 3: DATABASE_URL=postgres://... QUEUE=billing python worker.py"""
import os, signal, threading, time
import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

URL, QUEUE = os.environ["DATABASE_URL"], os.environ.get("QUEUE", "default")
BEAT = float(os.environ.get("BEAT_SECONDS", "15"))  # rescue takes what was not beaten for in 60 seconds
TOKEN = ("job_id", "run_lease", "claim_slot", "receipt_id", "batch_id", "batch_index")
stopping, running, local = threading.Event(), {}, threading.local()

def book(job):  # a handler: its rows and its completion commit together, or not at all
    with psycopg.connect(URL) as tx:
        args, completion = job["args"], ", ".join(f"%({name})s" for name in TOKEN)
        if args["amount"] == 0:
            raise ValueError("nothing to book")
        tx.execute("insert into entries (job_id, account, amount) values (%s, %s, %s)", (job["job_id"], args["account"], args["amount"]))
        if tx.execute("update accounts set balance = balance + %(amount)s where id = %(account)s", args).rowcount == 0:
            raise LookupError(f"there is no account {args['account']}")
        tx.execute(f"select awa.complete_job({completion})", job)

HANDLERS = {"book": book}

def ask(sql, *values):  # the worker's own connection, one for each thread, never a handler's
    if getattr(local, "connection", None) is None or local.connection.closed:
        local.connection = psycopg.connect(URL, autocommit=True, row_factory=dict_row, options="-c statement_timeout=10s")
    return local.connection.execute(sql, values).fetchall()

def tokens(jobs):
    return Jsonb([{name: job[name] for name in TOKEN} for job in jobs])

def beat(worker):
    while not stopping.wait(BEAT):
        try:
            for lost in ask("select * from awa.worker_beat(%s, %s)", worker, tokens(list(running.values()))):
                print(f"job {lost['job_id']} is not ours any more: {lost['outcome']}", flush=True)
        except psycopg.Error as error:
            print(f"no beat: {error}", flush=True)

def reconcile(job, failure):  # after every exit: durable evidence decides, whatever the handler says
    detail = {"error": {"name": type(failure).__name__, "message": str(failure)}, "delay_ms": 1000 * 2 ** min(job["attempt"], 10)}
    outcome = "discarded" if isinstance(failure, ValueError) else "retried"
    if getattr(failure, "sqlstate", None) == "WA006":
        outcome = "gated"  # put aside, not counted, until the queue is enabled
    until, pause = time.monotonic() + 30, 0.05
    while time.monotonic() < until:
        try:
            [seen] = ask("select * from awa.worker_evidence(%s)", tokens([job]))
            if seen["status"] == "open":
                [answer] = ask("select awa.worker_settle(%s -> 0, %s, %s) as was", tokens([job]), outcome, Jsonb(detail))
                if answer["was"] in ("closed", "repeated"):
                    return outcome
            elif seen["status"] != "unknown":  # somebody else's end of the attempt is left alone
                return "accepted" if seen["outcome"] == "completed" else "stale"
        except psycopg.OperationalError:
            pass  # no answer: it is asked for again, nothing is guessed
        time.sleep(pause)
        pause = min(pause * 2, 2)
    return "unresolved"  # nothing more is done to it: rescue takes the attempt

def main():
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    worker = ask("select awa.worker_register(%s) as id", f"python {os.getpid()}")[0]["id"]
    threading.Thread(target=beat, args=(worker,), daemon=True).start()
    while not stopping.is_set():
        try:
            job = (ask("select * from awa.worker_claim(%s, %s, 1)", worker, QUEUE) or [{"job_id": None, "retry_ms": 200}])[0]
        except psycopg.OperationalError:
            job = {"job_id": None, "retry_ms": 1000}
        if job["job_id"] is None:
            stopping.wait(job["retry_ms"] / 1000)
            continue
        running[job["job_id"], job["run_lease"]], failure = job, RuntimeError("the handler returned without complete_job")
        try:
            HANDLERS[job["kind"]](job)
        except Exception as error:
            failure = error
        print(f"job {job['job_id']} attempt {job['attempt']}: {reconcile(job, failure)}", flush=True)
        del running[job["job_id"], job["run_lease"]]
    ask("select awa.worker_retire(%s) as done", worker)

if __name__ == "__main__":
    main()
