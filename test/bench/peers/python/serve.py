"""The part that is the same for every peer written in Python: it reads the request, keeps the time, counts, checks that
every job ran exactly once, and prints the answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import platform
import resource
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Literal

import psycopg

Lane = Literal["ordinary", "owned"]
Started = Callable[[int], None]
Enqueue = Callable[[str, Sequence[int]], Awaitable[object]]

CHANGE_ACCOUNT = "update bench_accounts set n = n + 1 where id = "


def account_of(n: int) -> int:
    return n % 1000 + 1


class Peer(ABC):
    description: dict[str, str | None]
    #: How many jobs one call takes at its best, and how many calls are under way at once.
    batch: int
    calls: int
    #: Counts the durably completed jobs.
    completed: str
    #: Whether handlers may run far ahead of their completions, so that these are to be counted in the tables.
    runs_ahead = False

    @abstractmethod
    async def install(self, url: str) -> None: ...

    @abstractmethod
    def producer(self, url: str) -> contextlib.AbstractAsyncContextManager[Enqueue]:
        """One call of what it yields is one call of the peer's public API."""

    @abstractmethod
    def work(
        self, url: str, queues: Sequence[str], lane: Lane, started: Started
    ) -> contextlib.AbstractAsyncContextManager[None]:
        """A worker that calls `started` at the start of each job's handler."""


def queue_names(count: int) -> list[str]:
    return [f"bench_{index}" for index in range(count)]


class Begun:
    def __init__(self) -> None:
        self.at = time.perf_counter()
        self.cpu = time.process_time()

    def measured(self, jobs: int) -> dict[str, Any]:
        return {
            "jobs": jobs,
            "seconds": time.perf_counter() - self.at,
            "cpuSeconds": time.process_time() - self.cpu,
            "peakBytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }


class Timeline:
    """Counts by the second."""

    def __init__(self) -> None:
        self.at = time.perf_counter()
        self.counts: list[int] = []
        self.total = 0

    def count(self) -> None:
        second = int(time.perf_counter() - self.at)
        while len(self.counts) <= second:
            self.counts.append(0)
        self.counts[second] += 1
        self.total += 1


async def completed(peer: Peer, url: str) -> int:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        row = await (await connection.execute(peer.completed.encode())).fetchone()
        return int(row[0]) if row else 0


def calls(first: int, jobs: int, size: int, queues: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """Jobs go round robin over the queues."""
    groups: list[list[int]] = [[] for _ in queues]
    for n in range(first, jobs):
        index = n % len(queues)
        groups[index].append(n)
        if len(groups[index]) >= size:
            yield queues[index], groups[index]
            groups[index] = []
    yield from ((queue, group) for queue, group in zip(queues, groups) if group)


async def enqueue(peer: Peer, url: str, jobs: int, queues: Sequence[str]) -> dict[str, Any]:
    async def between(first: int, last: int) -> None:
        waiting = calls(first, last, peer.batch, queues)

        async def lane() -> None:
            for queue, numbers in waiting:
                await send(queue, numbers)

        await asyncio.gather(*(lane() for _ in range(peer.calls)))

    async with peer.producer(url) as send:
        warm = min(100, jobs // 2)
        await between(0, warm)
        begun = Begun()
        await between(warm, jobs)
        return begun.measured(jobs - warm)


async def drain(peer: Peer, url: str, jobs: int, queues: Sequence[str], lane: Lane) -> dict[str, Any]:
    ran = bytearray(jobs)
    before = await completed(peer, url)
    begun = Begun()
    timeline = Timeline()

    def started(n: int) -> None:
        ran[n] += 1
        timeline.count()

    async with peer.work(url, queues, lane, started):
        while timeline.total < jobs:
            await asyncio.sleep(0.002)
        while await completed(peer, url) - before < jobs:
            await asyncio.sleep(0.005)
        result = begun.measured(jobs)
    if any(times != 1 for times in ran):
        raise RuntimeError(f"{jobs} jobs ran {timeline.total} times")
    done = await completed(peer, url) - before
    if done != jobs:
        raise RuntimeError(f"{jobs} jobs asked for, {done} completed in the table")
    return {**result, "timeline": timeline.counts}


async def latency(peer: Peer, url: str, per_second: float, seconds: float) -> dict[str, Any]:
    warm = 50  # the first jobs open connections
    count = warm + int(per_second * seconds)
    begun: dict[int, float] = {}
    returned: dict[int, float] = {}
    queues = queue_names(1)

    async def one(n: int) -> None:
        await send(queues[0], [n])
        returned[n] = time.perf_counter()

    def started(n: int) -> None:
        begun.setdefault(n, time.perf_counter())

    async with peer.work(url, queues, "ordinary", started), peer.producer(url) as send:
        await asyncio.sleep(1)  # the worker listens
        start = time.perf_counter()
        sending = []
        for n in range(count):
            await asyncio.sleep(max(0, start + n / per_second - time.perf_counter()))
            sending.append(asyncio.create_task(one(n)))
        await asyncio.gather(*sending)
        async with asyncio.timeout(30):
            while len(begun) < count:
                await asyncio.sleep(0.02)
    # A handler may start before its enqueue has returned: no wait.
    waits = sorted(max(0.0, (begun[n] - returned[n]) * 1000) for n in range(warm, count))

    def at(q: float) -> float:
        return waits[min(len(waits) - 1, int(q * len(waits)))]

    return {"samples": len(waits), "p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "max": at(1)}


async def work(peer: Peer, url: str, seconds: float) -> dict[str, Any]:
    timeline = Timeline()
    durable: list[int] = []
    before = await completed(peer, url)
    async with peer.work(url, queue_names(1), "ordinary", lambda _: timeline.count()):
        start = time.perf_counter()
        for second in range(1, int(seconds) + 1):
            await asyncio.sleep(max(0, start + second - time.perf_counter()))
            if peer.runs_ahead:
                now = await completed(peer, url)
                durable.append(now - before)
                before = now
        whole = (timeline.counts + [0] * int(seconds))[: int(seconds)]
    return {"timeline": durable if peer.runs_ahead else whole}


async def answer(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    match request:
        case {"do": "describe"}:
            return {**peer.description, "runtime": f"Python {platform.python_version()}"}
        case {"do": "install", "url": url}:
            await peer.install(url)
            return {}
        case {"do": "enqueue", "url": url, "jobs": jobs, "queues": queues}:
            return await enqueue(peer, url, jobs, queue_names(queues))
        case {"do": "drain", "processes": processes} if processes != 1:
            return {"unsupported": "one process is one worker: start several"}
        case {"do": "drain", "url": url, "jobs": jobs, "queues": queues}:
            return await drain(peer, url, jobs, queue_names(queues), "ordinary")
        case {"do": "owned", "url": url, "jobs": jobs}:
            return await drain(peer, url, jobs, queue_names(1), "owned")
        case {"do": "latency", "url": url, "perSecond": per_second, "seconds": seconds}:
            return await latency(peer, url, per_second, seconds)
        case {"do": "work", "url": url, "seconds": seconds}:
            return await work(peer, url, seconds)
        case {"do": "idle", "url": url, "seconds": seconds}:
            async with peer.work(url, queue_names(1), "ordinary", lambda _: None):
                await asyncio.sleep(seconds)
            return {}
    return {"unsupported": f"no request of this name: {request.get('do')}"}


def serve(peer: Peer) -> None:
    print(json.dumps(asyncio.run(answer(peer, json.loads(sys.argv[1])))))


@contextlib.asynccontextmanager
async def cancelled_at_end(running: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """For a worker that is one call: it runs meanwhile, and its failure ends what is inside."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(running)
        yield
        task.cancel()
