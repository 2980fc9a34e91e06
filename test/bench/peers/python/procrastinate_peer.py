"""Procrastinate as a peer of the benchmark."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from importlib.metadata import version

import procrastinate
import psycopg_pool
from serve import CHANGE_ACCOUNT, Enqueue, Lane, Peer, Started, account_of, cancelled_at_end, serve

CONCURRENCY = 20
POOL = 20
BATCH = 1_000


def app_of(url: str) -> procrastinate.App:
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=POOL, max_size=POOL)
    return procrastinate.App(connector=connector)


class Procrastinate(Peer):
    description = {
        "name": "Procrastinate",
        "version": version("procrastinate"),
        "configuration": f"async worker, concurrency {CONCURRENCY}, pool of {POOL}, LISTEN/NOTIFY (default), "
        f"jobs kept (default); batch_defer_async by {BATCH}, 2 at once",
        "guarantee": "at most once unless the application retries stalled jobs itself (get_stalled_jobs): "
        "a dead worker's job stays doing",
        "owned": "separate transactions: the handler commits its update, then Procrastinate finishes the job; "
        "a crash between them leaves it doing",
    }
    batch = BATCH
    calls = 2
    completed = "select count(*) from procrastinate_jobs where status = 'succeeded'"

    async def install(self, url: str) -> None:
        async with app_of(url).open_async() as app:
            await app.schema_manager.apply_schema_async()

    @contextlib.asynccontextmanager
    async def producer(self, url: str) -> AsyncIterator[Enqueue]:
        async with app_of(url).open_async() as app:

            async def send(queue: str, numbers: Sequence[int]) -> None:
                bench = app.configure_task("bench", queue=queue)
                if len(numbers) == 1:
                    await bench.defer_async(n=numbers[0])
                else:
                    await bench.batch_defer_async(*({"n": n} for n in numbers))

            yield send

    @contextlib.asynccontextmanager
    async def work(self, url: str, queues: Sequence[str], lane: Lane, started: Started) -> AsyncIterator[None]:
        application = psycopg_pool.AsyncConnectionPool(
            url, min_size=CONCURRENCY if lane == "owned" else 0, max_size=CONCURRENCY, open=False
        )
        app = app_of(url)

        @app.task(name="bench")
        async def bench(n: int) -> None:
            started(n)
            if lane == "owned":
                async with application.connection() as connection, connection.transaction():
                    await connection.execute(CHANGE_ACCOUNT + "%s", [account_of(n)])

        async with application, app.open_async():
            running = app.run_worker_async(
                queues=queues, concurrency=CONCURRENCY, install_signal_handlers=False
            )
            async with cancelled_at_end(running):
                yield


serve(Procrastinate())
