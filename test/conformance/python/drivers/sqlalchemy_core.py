"""SQLAlchemy Core over psycopg: `with engine.begin()`, and `with connection.begin_nested()` in it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from sqlalchemy import Column, Connection, MetaData, Table, Text, create_engine, insert, make_url, text
from sqlalchemy.exc import DBAPIError

application_rows = Table("application_rows", MetaData(), Column("tag", Text))

TOKEN = """
    job_id => :job_id, run_lease => :run_lease, claim_slot => :claim_slot,
    receipt_id => :receipt_id, batch_id => :batch_id, batch_index => :batch_index"""
EXPECT = text(f"select awa.expect_completion({TOKEN})")
COMPLETE = text(f"select job_id, outcome from awa.complete_job({TOKEN}, progress => :progress)")


class Driver:
    is_async = False

    def __init__(self, url: str) -> None:
        # prepare_threshold: behind a pooler in transaction mode nothing may be prepared
        self.engine = create_engine(
            make_url(url).set(drivername="postgresql+psycopg"), connect_args={"prepare_threshold": None}
        )

    def connect(self) -> None:
        self.engine.connect().close()

    def close(self) -> None:
        self.engine.dispose()

    def transaction(self, isolation: str) -> AbstractContextManager[Connection]:
        return self.engine.execution_options(isolation_level=isolation.upper()).begin()

    @contextmanager
    def nested(self, connection: Connection) -> Iterator[Connection]:
        with connection.begin_nested():
            yield connection

    def alone(self) -> AbstractContextManager[Connection]:
        return self.engine.execution_options(isolation_level="AUTOCOMMIT").connect()

    def write(self, connection: Connection, tag: str) -> None:
        connection.execute(insert(application_rows), {"tag": tag})

    def expect(self, connection: Connection, token: dict[str, Any]) -> None:
        connection.execute(EXPECT, token)

    def complete(self, connection: Connection, token: dict[str, Any], progress: str | None) -> list[Any]:
        return list(connection.execute(COMPLETE, {**token, "progress": progress}))

    def execute(self, connection: Connection, statement: str) -> None:
        connection.exec_driver_sql(statement)

    def sqlstate(self, error: Exception) -> str | None:
        return getattr(error.orig, "sqlstate", None) if isinstance(error, DBAPIError) else None
