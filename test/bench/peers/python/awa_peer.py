"""awa's Python package as a peer of the benchmark."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import awa
from serve import CHANGE_ACCOUNT, Enqueue, Lane, Peer, Started, account_of, queue_names, serve

WORKERS = 512
OWNED_WORKERS = 20
BATCH = 1_000


@dataclass
class Bench:
    n: int


class Awa(Peer):
    description = {
        "name": "awa (Python)",
        "version": version("awa-pg"),
        "configuration": f"AsyncClient, queue storage (default), {WORKERS} workers, deadline_duration_ms 0 (compact claims), "
        f"enqueue_many_copy by {BATCH}, 2 at once; owned: {OWNED_WORKERS} workers",
        "guarantee": "at least once, fenced by (job id, run_lease); a dead worker's jobs are rescued when their "
        "heartbeat is stale (default 90 s)",
        "owned": "separate transactions: the handler commits its update, then awa completes the job (batched); "
        "a crash between them repeats the update",
    }
    batch = BATCH
    calls = 2
    runs_ahead = True
    completed = """
        select (select coalesce(sum(completed_count), 0) from awa.receipt_completion_batches)
            + (select count(*) from awa.done_entries where state = 'completed')
            + (select coalesce(sum(pruned_completed_count), 0) from awa.queue_terminal_rollups)"""

    async def install(self, url: str) -> None:
        async with awa.AsyncClient(url) as client:
            await client.migrate()
        # A fresh database comes to queue storage when its first worker starts, before there is any job.
        async with self.work(url, queue_names(1), "ordinary", lambda _: None):
            pass

    @contextlib.asynccontextmanager
    async def producer(self, url: str) -> AsyncIterator[Enqueue]:
        async with awa.AsyncClient(url) as client:

            async def send(queue: str, numbers: Sequence[int]) -> None:
                if len(numbers) == 1:
                    await client.insert(Bench(numbers[0]), kind="bench", queue=queue)
                else:
                    jobs = [Bench(n) for n in numbers]
                    await client.enqueue_many_copy(jobs, kind="bench", queue=queue)

            yield send

    @contextlib.asynccontextmanager
    async def work(self, url: str, queues: Sequence[str], lane: Lane, started: Started) -> AsyncIterator[None]:
        workers = OWNED_WORKERS if lane == "owned" else WORKERS
        async with awa.AsyncClient(url, max_connections=40 if lane == "owned" else 20) as client:

            @client.task(Bench, kind="bench", queue=queues[0])
            async def bench(job: awa.Job[Bench]) -> None:
                started(job.args.n)
                if lane == "owned":
                    async with await client.transaction() as transaction:
                        await transaction.execute(CHANGE_ACCOUNT + "$1", account_of(job.args.n))

            each = max(1, workers // len(queues))
            await client.start(
                [{"name": queue, "max_workers": each, "deadline_duration_ms": 0} for queue in queues]
            )
            try:
                yield
            finally:
                await client.shutdown(10_000)


serve(Awa())
