"""Connections to PostgreSQL for one process of the application.

    async with pool.transaction() as connection:
        await HiveRepository(connection).close(hive)

The pool connects on first use and reconnects after an outage; a request that gets no connection
in time fails with `StoreUnavailable`. Errors of the database are translated to those of
`penstock_store/errors.py` and `errors.py`.

Services open their own transactions. A caller that needs several calls in one transaction uses
`join_transaction`: everything its task does in the block commits together. `after_commit` delays a
notification of others until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row
from psycopg.sql import SQL, Identifier, Literal, Placeholder
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from penstock_hives.errors import InvalidRequest, RequestConflict
from penstock_store import StoreUnavailable
from penstock_store.database import describe_url, validate_url
from penstock_store.errors import translate_error

Connection = psycopg.AsyncConnection[DictRow]
Row = dict[str, Any]
Parameters = Sequence[Any] | Mapping[str, Any]
T = TypeVar("T")
AfterCommit = Callable[[], Awaitable[object]]

#: Requests that may wait, for each connection of the pool; more are refused.
MAX_WAITING: Final = 16


@dataclass(frozen=True, slots=True)
class _JoinedTransaction:
    connection: Connection
    after_commit: list[AfterCommit] = field(default_factory=list)


class DatabasePool:
    """At most `size` connections, shared by the tasks of one event loop."""

    def __init__(
        self, url: str, size: int = 8, wait: float = 2.0, statement_seconds: float = 10.0
    ) -> None:
        self.url = validate_url(url)
        self._where = describe_url(url)
        # By task, not by context variable: a task started in the block has its own connections.
        self._joined: dict[asyncio.Task[Any] | None, _JoinedTransaction] = {}
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

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Commits at the end of the block, rolls back if it raises."""
        async with self.reading() as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def join_transaction(self) -> AsyncIterator[Connection]:
        """One transaction for all that this task does in the block; inner ones are savepoints."""
        task = asyncio.current_task()
        async with self.transaction() as connection:
            joined = self._joined[task] = _JoinedTransaction(connection)
            try:
                yield connection
            finally:
                del self._joined[task]
        for action in joined.after_commit:
            await action()

    async def after_commit(self, action: AfterCommit) -> None:
        """Run the action when the joined transaction has committed; at once if there is none."""
        joined = self._joined.get(asyncio.current_task())
        if joined is None:
            await action()
        else:
            joined.after_commit.append(action)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """A connection in autocommit mode."""
        joined = self._joined.get(asyncio.current_task())
        try:
            if joined is not None:
                async with joined.connection.transaction():
                    yield joined.connection
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
    """Constraint violations as errors of the request, the rest as errors of the store."""
    if isinstance(error, errors.UniqueViolation | errors.ExclusionViolation):
        return RequestConflict(f"it exists already ({error.diag.constraint_name})")
    if isinstance(error, errors.ForeignKeyViolation):
        return RequestConflict(f"it refers to a missing row ({error.diag.constraint_name})")
    if isinstance(error, errors.CheckViolation | errors.NotNullViolation):
        what = error.diag.constraint_name or error.diag.column_name
        return InvalidRequest(f"a value is not allowed ({what})")
    if isinstance(error, psycopg.DataError):
        return InvalidRequest(f"a value cannot be stored: {error.diag.message_primary or error}")
    return translate_error(error, where)


async def fetch_all(
    connection: Connection,
    kind: Callable[..., T],
    statement: str,
    parameters: Parameters | None = None,
) -> list[T]:
    """The rows as values of a class, by the names of the columns."""
    return [kind(**row) async for row in await connection.execute(statement, parameters)]


async def fetch_one(
    connection: Connection, kind: Callable[..., T], statement: str, parameters: Parameters
) -> T | None:
    row = await (await connection.execute(statement, parameters)).fetchone()
    return None if row is None else kind(**row)


async def insert_row(connection: Connection, table: str, values: Mapping[str, Any]) -> int:
    """Insert the named columns; returns the id. Names come from our models, never from requests."""
    given = _parameters(values)
    statement = SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING id").format(
        Identifier(table),
        SQL(", ").join(Identifier(name) for name in given),
        SQL(", ").join(Placeholder(name) for name in given),
    )
    row = await (await connection.execute(statement, given)).fetchone()
    assert row is not None
    return int(row["id"])


async def update_row(
    connection: Connection, table: str, key: int, values: Mapping[str, Any]
) -> bool:
    """Update the named columns; whether the row exists (true if there is nothing to change)."""
    if not values:
        return True
    given = _parameters(values)
    pairs = SQL(", ").join(
        SQL("{} = {}").format(Identifier(name), Placeholder(name)) for name in given
    )
    statement = SQL("UPDATE {} SET {} WHERE id = {}").format(Identifier(table), pairs, Literal(key))
    return (await connection.execute(statement, given)).rowcount == 1


def _parameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Objects as JSON, tuples as arrays."""
    return {
        name: Jsonb(value)
        if isinstance(value, dict)
        else list(value)
        if isinstance(value, tuple)
        else value
        for name, value in values.items()
    }
