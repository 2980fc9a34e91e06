"""SQLAlchemy's ORM over psycopg: `with Session(engine) as session, session.begin()`, in it `session.begin_nested()`."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

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

    @contextmanager
    def transaction(self, isolation: str) -> Iterator[Session]:
        engine = self.engine.execution_options(isolation_level=isolation.upper())
        with Session(engine) as session, session.begin():
            yield session

    @contextmanager
    def nested(self, session: Session) -> Iterator[Session]:
        with session.begin_nested():
            yield session

    def alone(self) -> AbstractContextManager[Session]:
        return Session(self.engine.execution_options(isolation_level="AUTOCOMMIT"))

    def write(self, session: Session, tag: str) -> None:
        session.add(ApplicationRow(tag=tag))
        # a step is a statement; left alone, the session would send it before its next query of the ORM, or with COMMIT
        session.flush()

    def expect(self, session: Session, token: dict[str, Any]) -> None:
        session.execute(EXPECT, token)

    def complete(self, session: Session, token: dict[str, Any], progress: str | None) -> list[Any]:
        return list(session.execute(COMPLETE, {**token, "progress": progress}))

    def execute(self, session: Session, statement: str) -> None:
        session.connection().exec_driver_sql(statement)

    def sqlstate(self, error: Exception) -> str | None:
        return getattr(error.orig, "sqlstate", None) if isinstance(error, DBAPIError) else None
