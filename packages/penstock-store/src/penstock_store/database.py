"""A PostgreSQL database: transactions, statements, rows.

    with Database(url) as database:
        with database.transaction() as connection:
            connection.execute("UPDATE hive SET capacity = %s WHERE id = %s", (80, 7))
        database.rows("SELECT id, name FROM hive")

Connections are kept for the next call and looked at before they are used again, so a server that
was restarted in between is not noticed. One that is away is a `StoreUnavailable`; `core.retry`
tries again. Any number of threads may share a `Database`; it does not cross into other processes:
send them the `url`.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow, dict_row
from psycopg.sql import SQL, Composed

from penstock_store.errors import invalid_url, translate_error

Connection = psycopg.Connection[DictRow]
Parameters = Sequence[Any] | Mapping[str, Any]
#: Text is sent as it stands; what is put together at run time is composed (`psycopg.sql`). Values
#: travel as parameters, always.
Statement = str | SQL | Composed

#: Idle connections kept. A process has few threads that talk to the database at once.
MAX_IDLE_CONNECTIONS: Final = 4
CONNECT_TIMEOUT_SECONDS: Final = 10
#: No statement of ours should come near it. One that does holds locks others wait for.
STATEMENT_TIMEOUT_SECONDS: Final = 300.0
_CLOSED_EVENTS: Final = select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL


class Database:
    """One database by URL. Nothing is connected until something is asked."""

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
        """All or nothing: committed at the end of the block, rolled back if it raises."""
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
        """Run one statement in a transaction of its own. How many rows it touched."""
        with self.transaction() as connection:
            return connection.execute(statement, parameters).rowcount

    def rows(
        self, statement: Statement, parameters: Parameters | None = None
    ) -> list[dict[str, Any]]:
        with self.transaction() as connection:
            return connection.execute(statement, parameters).fetchall()

    def close(self) -> None:
        """Let go of idle connections; those in use are closed when they come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        # One that broke, or was interrupted in the middle of something, is not for others.
        sound = connection.info.transaction_status is TransactionStatus.IDLE
        if sound:
            connection.isolation_level = None
        with self._lock:
            keep = sound and not self._closed and len(self._idle) < MAX_IDLE_CONNECTIONS
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()


def connect(url: str, statement_seconds: float = STATEMENT_TIMEOUT_SECONDS) -> Connection:
    """A connection of one's own, with our session settings; its errors have our names."""
    given = conninfo_to_dict(validate_url(url))
    ours = f"-c TimeZone=UTC -c statement_timeout={int(statement_seconds * 1000)}"
    settings: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT_SECONDS,
        "application_name": "penstock",
        **given,
        "options": f"{ours} {given.get('options') or ''}".strip(),
    }
    try:
        # Out of a transaction unless in `transaction()`: an idle connection holds nothing up.
        return psycopg.Connection[DictRow].connect(
            autocommit=True, row_factory=dict_row, **settings
        )
    except psycopg.Error as error:
        raise translate_error(error, describe_url(url)) from error


def _is_open(connection: Connection) -> bool:
    """Whether an idle connection still stands: a server that ended it has sent a word or an end."""
    poll = select.poll()
    poll.register(connection.fileno(), _CLOSED_EVENTS)
    return not poll.poll(0)


# A database's URL as PostgreSQL's own library reads it, and as a person may see it.
#
# The embedded server's URL has its socket's directory in it (`postgresql:///penstock?host=/…`), any
# other is what the operator wrote. Passwords stay out of every message.

_SCHEMES: Final = ("postgresql://", "postgres://")


def validate_url(url: str) -> str:
    """The URL, if it is one of a PostgreSQL database."""
    if not url.startswith(_SCHEMES):
        raise invalid_url(url)
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise invalid_url(url) from error
    return url


def describe_url(url: str) -> str:
    """Where it is, without who asks and how they prove it: `host:port/name`."""
    parts = conninfo_to_dict(url)
    host = parts.get("host") or parts.get("hostaddr") or "localhost"
    return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or parts.get('user') or ''}"


def sqlalchemy_url(url: str) -> str:
    """The same address for Alembic, which speaks through SQLAlchemy and the same driver."""
    return "postgresql+psycopg://" + url.partition("://")[2]
