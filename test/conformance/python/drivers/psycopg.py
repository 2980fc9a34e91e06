"""psycopg 3: `with connection.transaction()`, which is a savepoint when it is inside another."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import psycopg

TOKEN = """
    job_id => %(job_id)s, run_lease => %(run_lease)s, claim_slot => %(claim_slot)s,
    receipt_id => %(receipt_id)s, batch_id => %(batch_id)s, batch_index => %(batch_index)s"""
EXPECT = f"select awa.expect_completion({TOKEN})"
COMPLETE = f"select job_id, outcome from awa.complete_job({TOKEN}, progress => %(progress)s)"

LEVELS = {level.name.replace("_", " ").lower(): level for level in psycopg.IsolationLevel}


class Driver:
    is_async = False

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection: psycopg.Connection[Any] | None = None

    def connect(self) -> None:
        if self.connection is None or self.connection.closed:
            # prepare_threshold: behind a pooler in transaction mode nothing may be prepared
            self.connection = psycopg.connect(self.url, autocommit=True, prepare_threshold=None)

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()

    @contextmanager
    def transaction(self, isolation: str) -> Iterator[psycopg.Connection[Any]]:
        connection = self.connection
        assert connection is not None
        connection.isolation_level = LEVELS[isolation]
        with connection.transaction():
            yield connection

    @contextmanager
    def nested(self, connection: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
        with connection.transaction():
            yield connection

    def alone(self) -> AbstractContextManager[Any]:
        return nullcontext(self.connection)

    def write(self, connection: psycopg.Connection[Any], tag: str) -> None:
        connection.execute("insert into application_rows (tag) values (%s)", [tag])

    def expect(self, connection: psycopg.Connection[Any], token: dict[str, Any]) -> None:
        connection.execute(EXPECT, token)

    def complete(self, connection: psycopg.Connection[Any], token: dict[str, Any], progress: str | None) -> list[Any]:
        return connection.execute(COMPLETE, {**token, "progress": progress}).fetchall()

    def execute(self, connection: psycopg.Connection[Any], statement: str) -> None:
        connection.execute(statement)

    def sqlstate(self, error: Exception) -> str | None:
        return error.sqlstate if isinstance(error, psycopg.Error) else None
