"""Connections to PostgreSQL for one process of the application.

    async with pool.transaction() as connection:
        await HiveRepository(connection).close(hive)

Nothing is connected before it is used, and a server that comes back is found again: a request that
meets neither gets `StoreUnavailable` after a short wait. What the database refuses has the names
of `penstock_store/errors.py` and `domain/errors.py`; a wrong statement keeps its own.

Services open a transaction for what they do and know of none around it. Who calls several of them,
or has something of its own to write with what they write, joins them (`joined`): all its task does
is one transaction then. What others are told of it waits until it is committed (`afterwards`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row
from psycopg.sql import SQL, Composed, Identifier, Literal, Placeholder
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from penstock_hives.errors import InvalidRequest, RequestConflict
from penstock_store import StoreUnavailable
from penstock_store.database import describe_url, validate_url
from penstock_store.errors import translate_error

Connection = psycopg.AsyncConnection[DictRow]
Row = dict[str, Any]
Parameters = Sequence[Any] | Mapping[str, Any]
AfterCommit = Callable[[], Awaitable[object]]

#: Requests that may wait for a connection at once, for each connection there may be. More would
#: only wait longer; they are told to come again.
MAX_WAITING: Final = 16


@dataclass(frozen=True, slots=True)
class _Joined:
    connection: Connection
    deeds: list[AfterCommit] = field(default_factory=list)


class DatabasePool:
    """At most `size` connections, shared by the tasks of one event loop."""

    def __init__(
        self, url: str, size: int = 8, wait: float = 2.0, statement_seconds: float = 10.0
    ) -> None:
        self.url = validate_url(url)
        self._where = describe_url(url)
        # By task, not by context: a task that one of these starts has connections of its own.
        self._joined: dict[asyncio.Task[Any] | None, _Joined] = {}
        given = conninfo_to_dict(url).get("options") or ""
        ours = f"-c TimeZone=UTC -c statement_timeout={int(statement_seconds * 1000)}"
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            make_conninfo(url, options=f"{ours} {given}".strip()),
            connection_class=psycopg.AsyncConnection[DictRow],
            kwargs={"autocommit": True, "row_factory": dict_row, "connect_timeout": 5},
            min_size=1,
            max_size=size,
            max_waiting=size * MAX_WAITING,
            timeout=wait,
            reconnect_timeout=5.0,
            check=AsyncConnectionPool.check_connection,
            open=False,
            name="hives",
        )

    async def open(self) -> None:
        await self._pool.open(wait=False)

    async def close(self) -> None:
        await self._pool.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """All or nothing: committed at the end of the block, rolled back if it raises."""
        async with self.reading() as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def joined(self) -> AsyncIterator[Connection]:
        """Whatever this task does in the block, by whichever method, is one transaction. What it
        opens within are savepoints: one that is refused undoes itself only."""
        task = asyncio.current_task()
        async with self.transaction() as connection:
            held = self._joined[task] = _Joined(connection)
            try:
                yield connection
            finally:
                del self._joined[task]
        for deed in held.deeds:
            await deed()

    async def afterwards(self, deed: AfterCommit) -> None:
        """Do it once what was written is committed: now, if this task is in no `joined` block. If
        that fails it is not done."""
        held = self._joined.get(asyncio.current_task())
        if held is None:
            await deed()
        else:
            held.deeds.append(deed)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """A connection out of a transaction: for statements that stand alone."""
        held = self._joined.get(asyncio.current_task())
        try:
            if held is not None:
                async with held.connection.transaction():
                    yield held.connection
                return
            async with self._pool.connection() as connection:
                yield connection
        except (PoolTimeout, PoolClosed, TooManyRequests) as error:
            raise StoreUnavailable(f"no connection to the database at {self._where}") from error
        except psycopg.Error as error:
            raise translate_statement_error(error, self._where) from error

    async def rows(self, statement: str, parameters: Parameters | None = None) -> list[Row]:
        async with self.reading() as connection:
            return await (await connection.execute(statement, parameters)).fetchall()

    async def row(self, statement: str, parameters: Parameters | None = None) -> Row | None:
        async with self.reading() as connection:
            return await (await connection.execute(statement, parameters)).fetchone()

    async def execute(self, statement: str, parameters: Parameters | None = None) -> int:
        async with self.reading() as connection:
            return (await connection.execute(statement, parameters)).rowcount


def translate_statement_error(error: psycopg.Error, where: str) -> Exception:
    """What the database says of values people gave, in words for them."""
    if isinstance(error, errors.UniqueViolation | errors.ExclusionViolation):
        return RequestConflict(f"there is one already ({error.diag.constraint_name})")
    if isinstance(error, errors.ForeignKeyViolation):
        return RequestConflict(
            f"it refers to something that is not there ({error.diag.constraint_name})"
        )
    if isinstance(error, errors.CheckViolation | errors.NotNullViolation):
        what = error.diag.constraint_name or error.diag.column_name
        return InvalidRequest(f"a value is not allowed ({what})")
    if isinstance(error, psycopg.DataError):
        return InvalidRequest(f"a value cannot be kept: {error.diag.message_primary or error}")
    return translate_error(error, where)


# UPDATE and INSERT of the columns a caller has named, and no others.
#
# Names come from models of ours, never from a request; they are quoted as identifiers all the same.


def insert(table: str, values: Mapping[str, Any], returning: str = "id") -> Composed:
    names = SQL(", ").join(Identifier(name) for name in values)
    given = SQL(", ").join(Placeholder(name) for name in values)
    return SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING {}").format(
        Identifier(table), names, given, Identifier(returning)
    )


def update(table: str, values: Mapping[str, Any], key: int) -> Composed:
    pairs = SQL(", ").join(
        SQL("{} = {}").format(Identifier(name), Placeholder(name)) for name in values
    )
    return SQL("UPDATE {} SET {} WHERE id = {}").format(Identifier(table), pairs, Literal(key))


def sent(values: Mapping[str, Any]) -> dict[str, Any]:
    """As the driver takes them: objects are JSON, tuples are arrays."""
    return {
        name: Jsonb(value)
        if isinstance(value, dict)
        else list(value)
        if isinstance(value, tuple)
        else value
        for name, value in values.items()
    }
