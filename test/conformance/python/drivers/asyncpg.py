"""asyncpg: `async with connection.transaction()`, which is a savepoint when it is inside another.

Parameters are integers, where the server wants integers.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

import asyncpg

EXPECT = "select awa.expect_completion($1, $2, $3, $4, $5, $6)"
COMPLETE = "select job_id, outcome from awa.complete_job($1, $2, $3, $4, $5, $6, $7)"


def fields(token: dict[str, Any]) -> list[int | None]:
    names = ["job_id", "run_lease", "claim_slot", "receipt_id", "batch_id", "batch_index"]
    return [None if token[name] is None else int(token[name]) for name in names]


class Driver:
    is_async = True

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection: Any = None

    async def connect(self) -> None:
        if self.connection is None or self.connection.is_closed():
            # statement_cache_size: behind a pooler in transaction mode nothing may be prepared
            self.connection = await asyncpg.connect(self.url, statement_cache_size=0)

    async def close(self) -> None:
        if self.connection is not None:
            await self.connection.close(timeout=5)

    @asynccontextmanager
    async def transaction(self, isolation: str) -> AsyncIterator[Any]:
        async with self.connection.transaction(isolation=isolation.replace(" ", "_")):
            yield self.connection

    @asynccontextmanager
    async def nested(self, connection: Any) -> AsyncIterator[Any]:
        async with connection.transaction():
            yield connection

    def alone(self) -> AbstractAsyncContextManager[Any]:
        return nullcontext(self.connection)

    async def write(self, connection: Any, tag: str) -> None:
        await connection.execute("insert into application_rows (tag) values ($1)", tag)

    async def expect(self, connection: Any, token: dict[str, Any]) -> None:
        await connection.execute(EXPECT, *fields(token))

    async def complete(self, connection: Any, token: dict[str, Any], progress: str | None) -> list[Any]:
        return await connection.fetch(COMPLETE, *fields(token), progress)

    async def execute(self, connection: Any, statement: str) -> None:
        await connection.execute(statement)

    def sqlstate(self, error: Exception) -> str | None:
        return getattr(error, "sqlstate", None)
