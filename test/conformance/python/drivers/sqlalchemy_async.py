"""SQLAlchemy's AsyncSession over asyncpg: `async with session.begin()`, and in it `session.begin_nested()`."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from sqlalchemy import URL, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

TOKEN = """
    job_id => :job_id, run_lease => :run_lease, claim_slot => :claim_slot,
    receipt_id => :receipt_id, batch_id => :batch_id, batch_index => :batch_index"""
EXPECT = text(f"select awa.expect_completion({TOKEN})")
COMPLETE = text(f"select job_id, outcome from awa.complete_job({TOKEN}, progress => :progress)")


class Base(DeclarativeBase):
    pass


class ApplicationRow(Base):
    __tablename__ = "application_rows"
    tag: Mapped[str] = mapped_column(primary_key=True)


def integers(token: dict[str, Any]) -> dict[str, int | None]:
    """What asyncpg takes for a bigint."""
    return {name: None if value is None else int(value) for name, value in token.items()}


def for_asyncpg(url: str) -> URL:
    """The same database, as SQLAlchemy names its driver, and asyncpg the parameter that libpq calls sslmode."""
    given = make_url(url).set(drivername="postgresql+asyncpg")
    renamed = {"ssl" if name == "sslmode" else name: value for name, value in given.query.items()}
    return given.set(query=renamed)


class Driver:
    is_async = True

    def __init__(self, url: str) -> None:
        # behind a pooler in transaction mode nothing may be prepared: neither cache, and statements without a name
        unprepared = {
            "statement_cache_size": 0,
            "prepared_statement_cache_size": 0,
            "prepared_statement_name_func": lambda: "",
        }
        self.engine = create_async_engine(for_asyncpg(url), connect_args=unprepared)

    async def connect(self) -> None:
        async with self.engine.connect():
            pass

    async def close(self) -> None:
        await self.engine.dispose()

    @asynccontextmanager
    async def transaction(self, isolation: str) -> AsyncIterator[AsyncSession]:
        engine = self.engine.execution_options(isolation_level=isolation.upper())
        async with AsyncSession(engine) as session, session.begin():
            yield session

    @asynccontextmanager
    async def nested(self, session: AsyncSession) -> AsyncIterator[AsyncSession]:
        async with session.begin_nested():
            yield session

    def alone(self) -> AbstractAsyncContextManager[AsyncSession]:
        return AsyncSession(self.engine.execution_options(isolation_level="AUTOCOMMIT"))

    async def write(self, session: AsyncSession, tag: str) -> None:
        session.add(ApplicationRow(tag=tag))
        # a step is a statement; left alone, the session would send it before its next query of the ORM, or with COMMIT
        await session.flush()

    async def expect(self, session: AsyncSession, token: dict[str, Any]) -> None:
        await session.execute(EXPECT, integers(token))

    async def complete(self, session: AsyncSession, token: dict[str, Any], progress: str | None) -> list[Any]:
        return list(await session.execute(COMPLETE, {**integers(token), "progress": progress}))

    async def execute(self, session: AsyncSession, statement: str) -> None:
        connection = await session.connection()
        await connection.exec_driver_sql(statement)

    def sqlstate(self, error: Exception) -> str | None:
        return getattr(error.orig, "sqlstate", None) if isinstance(error, DBAPIError) else None
