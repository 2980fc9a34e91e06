"""Django over psycopg: `with transaction.atomic(durable=True)`, and in it `with transaction.atomic()`, a savepoint."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import django
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, close_old_connections, connection, connections, models, transaction

settings.configure(DATABASES={DEFAULT_DB_ALIAS: {"ENGINE": "django.db.backends.postgresql"}})
django.setup()

TOKEN = """
    job_id => %(job_id)s, run_lease => %(run_lease)s, claim_slot => %(claim_slot)s,
    receipt_id => %(receipt_id)s, batch_id => %(batch_id)s, batch_index => %(batch_index)s"""
EXPECT = f"select awa.expect_completion({TOKEN})"
COMPLETE = f"select job_id, outcome from awa.complete_job({TOKEN}, progress => %(progress)s)"


class ApplicationRow(models.Model):
    tag = models.TextField(primary_key=True)

    class Meta:
        app_label = "conformance"
        db_table = "application_rows"
        managed = False


class Driver:
    is_async = False

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        # what a project's settings.py would say in DATABASES
        connections.settings[DEFAULT_DB_ALIAS].update(
            NAME=unquote(parts.path[1:]),
            USER=unquote(parts.username or ""),
            PASSWORD=unquote(parts.password or ""),
            HOST=parts.hostname,
            PORT=parts.port,
            OPTIONS=dict(parse_qsl(parts.query)),
            CONN_MAX_AGE=None,
            # behind a pooler in transaction mode a cursor WITH HOLD would stay in a session that is another's next
            DISABLE_SERVER_SIDE_CURSORS=True,
        )

    def connect(self) -> None:
        close_old_connections()  # as at the beginning of every request
        connection.ensure_connection()

    def close(self) -> None:
        connection.close()

    @contextmanager
    def transaction(self, isolation: str) -> Iterator[None]:
        with transaction.atomic(durable=True):
            if isolation != "read committed":
                self.execute(None, f"set transaction isolation level {isolation}")
            yield

    def nested(self, _: None) -> AbstractContextManager[None]:
        return transaction.atomic()

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()

    def write(self, _: None, tag: str) -> None:
        ApplicationRow.objects.create(tag=tag)

    def expect(self, _: None, token: dict[str, Any]) -> None:
        with connection.cursor() as cursor:
            cursor.execute(EXPECT, token)

    def complete(self, _: None, token: dict[str, Any], progress: str | None) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(COMPLETE, {**token, "progress": progress})
            return cursor.fetchall()

    def execute(self, _: None, statement: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    def sqlstate(self, error: Exception) -> str | None:
        # the errors of django.db say their driver's as their cause
        return getattr(error.__cause__, "sqlstate", None)
