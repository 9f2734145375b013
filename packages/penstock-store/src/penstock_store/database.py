"""A PostgreSQL database: transactions, statements, rows.

    with Database(url) as database:
        with database.transaction() as connection:
            connection.execute("UPDATE hive SET capacity = %s WHERE id = %s", (80, 7))
        database.rows("SELECT id, name FROM hive")

Idle connections are checked before reuse, so a restart of the server in between goes unnoticed. An
unreachable server raises `StoreUnavailable`; see `core.retry`. Threads may share a `Database`;
other processes need the `url`.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow, dict_row
from psycopg.sql import SQL, Composed

from penstock_store.errors import invalid_url, translate_error

Connection = psycopg.Connection[DictRow]
Parameters = Sequence[Any] | Mapping[str, Any]
#: Constant text, or composed with `psycopg.sql`; values are always parameters.
Statement = str | SQL | Composed

MAX_IDLE_CONNECTIONS: Final = 4
CONNECT_TIMEOUT_SECONDS: Final = 10
STATEMENT_TIMEOUT_SECONDS: Final = 300.0
_CLOSED_EVENTS: Final = select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL


class Database:
    """Connects on first use."""

    __slots__ = ("_closed", "_idle", "_lock", "_statement_seconds", "_where", "url")

    def __init__(self, url: str, statement_seconds: float = STATEMENT_TIMEOUT_SECONDS) -> None:
        self.url = validate_url(url)
        self._where = describe_url(url)
        self._statement_seconds = statement_seconds
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def transaction(self, *, serializable: bool = False) -> Iterator[Connection]:
        """Commits at the end of the block, rolls back if it raises."""
        connection = self._take()
        try:
            if serializable:
                connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
            with connection.transaction():
                yield connection
        except psycopg.Error as error:
            raise translate_error(error, self._where) from error
        finally:
            self._give_back(connection)

    def execute(self, statement: Statement, parameters: Parameters | None = None) -> int:
        """Run one statement; returns the number of affected rows."""
        with self.transaction() as connection:
            return connection.execute(statement, parameters).rowcount

    def rows(
        self, statement: Statement, parameters: Parameters | None = None
    ) -> list[dict[str, Any]]:
        with self.transaction() as connection:
            return connection.execute(statement, parameters).fetchall()

    def close(self) -> None:
        """Close idle connections now, others after their use."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self) -> Connection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return connect(self.url, self._statement_seconds)
            if _is_open(connection):
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        reusable = connection.info.transaction_status is TransactionStatus.IDLE
        if reusable:
            connection.isolation_level = None
        with self._lock:
            keep = reusable and not self._closed and len(self._idle) < MAX_IDLE_CONNECTIONS
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()


def connect(url: str, statement_seconds: float = STATEMENT_TIMEOUT_SECONDS) -> Connection:
    """A connection with our session settings."""
    given = conninfo_to_dict(validate_url(url))
    ours = f"-c TimeZone=UTC -c statement_timeout={int(statement_seconds * 1000)}"
    settings: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT_SECONDS,
        "application_name": "penstock",
        **given,
        "options": f"{ours} {given.get('options') or ''}".strip(),
    }
    try:
        # Autocommit: an idle connection holds no locks.
        return psycopg.Connection[DictRow].connect(
            autocommit=True, row_factory=dict_row, **settings
        )
    except psycopg.Error as error:
        raise translate_error(error, describe_url(url)) from error


def _is_open(connection: Connection) -> bool:
    """A closed idle connection is readable."""
    poll = select.poll()
    poll.register(connection.fileno(), _CLOSED_EVENTS)
    return not poll.poll(0)


_SCHEMES: Final = ("postgresql://", "postgres://")


def validate_url(url: str) -> str:
    if not url.startswith(_SCHEMES):
        raise invalid_url(url)
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise invalid_url(url) from error
    return url


def describe_url(url: str) -> str:
    """`host:port/name`, without user and password."""
    parts = conninfo_to_dict(url)
    host = parts.get("host") or parts.get("hostaddr") or "localhost"
    return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or parts.get('user') or ''}"


def sqlalchemy_url(url: str) -> str:
    """For Alembic."""
    return "postgresql+psycopg://" + url.partition("://")[2]
