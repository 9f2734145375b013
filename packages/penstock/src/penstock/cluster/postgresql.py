"""Coordination by PostgreSQL: one row for each cluster, leases by the server's clock.

`postgresql://user@host/database?cluster=NAME` names the cluster; the default is `penstock`. The
table `penstock_cluster` is created by the first member. Needs the extra `penstock[postgresql]`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import threading
import uuid
from typing import Any, Final, LiteralString
from urllib.parse import parse_qsl, urlencode, urlsplit

from penstock.cluster.coordinator import (
    ClusterView,
    LeaderRecord,
    Leadership,
    coordinator_threads,
)
from penstock.core.errors import ConfigurationError

#: Two that create the same table at the same time fail without the lock, in spite of IF NOT EXISTS.
_TABLE: Final = """
SELECT pg_advisory_xact_lock(hashtext('penstock_cluster'));
CREATE TABLE IF NOT EXISTS penstock_cluster (
    name    text PRIMARY KEY,
    id      text NOT NULL,
    secret  text NOT NULL,
    holder  text,                            -- the last leader
    record  text,                            -- where it is reached
    epoch   bigint NOT NULL DEFAULT 0,
    expires timestamptz NOT NULL DEFAULT '-infinity',
    in_sync text[]
)"""
_VIEW: Final = """
SELECT record, epoch, in_sync, expires > clock_timestamp() FROM penstock_cluster WHERE name = %s"""
_CAMPAIGN: Final = """
UPDATE penstock_cluster
SET in_sync = CASE WHEN in_sync IS NULL OR holder IS NULL OR holder = %(node)s
                   THEN coalesce(in_sync, ARRAY[%(node)s])
                   ELSE array_remove(in_sync, holder) END,
    holder = %(node)s, record = %(record)s, epoch = epoch + 1,
    expires = clock_timestamp() + make_interval(secs => %(lease)s)
WHERE name = %(name)s AND expires < clock_timestamp()
  AND (in_sync IS NULL OR %(node)s = ANY(in_sync))
RETURNING epoch, in_sync"""
_RENEW: Final = """
UPDATE penstock_cluster SET expires = clock_timestamp() + make_interval(secs => %(lease)s)
WHERE name = %(name)s AND holder = %(node)s AND epoch = %(epoch)s AND expires > clock_timestamp()
RETURNING 1"""
_RECORD: Final = """
UPDATE penstock_cluster SET in_sync = %(members)s
WHERE name = %(name)s AND holder = %(node)s AND epoch = %(epoch)s AND expires > clock_timestamp()
RETURNING 1"""
_RESIGN: Final = """
UPDATE penstock_cluster SET expires = '-infinity'
WHERE name = %(name)s AND holder = %(node)s AND epoch = %(epoch)s RETURNING 1"""
_FORCE: Final = """
UPDATE penstock_cluster SET in_sync = ARRAY[%(node)s]
WHERE name = %(name)s AND expires < clock_timestamp() RETURNING 1"""


#: How PostgreSQL refuses a user.
_REFUSALS: Final = (
    "authentication failed",
    "no password supplied",
    "pg_hba.conf",
    "FATAL:  role",
    "permission denied",
)


class PostgresqlCoordinator:
    def __init__(self, url: str, node: str, lease: float) -> None:
        try:
            import psycopg
        except ImportError:
            raise ConfigurationError(
                "broker.cluster.url: PostgreSQL needs a package: pip install 'penstock[postgresql]'"
            ) from None
        self._psycopg = psycopg
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        self._name = query.pop("cluster", "penstock")
        self._timeout = max(0.3, lease / 3)
        timeout = max(2, round(lease / 3))  # libpq's minimum
        query.setdefault("connect_timeout", str(timeout))
        query.setdefault("tcp_user_timeout", str(timeout * 1000))
        self._url = parts._replace(query=urlencode(query)).geturl()
        self._node = node
        self._lease = lease
        self._threads = coordinator_threads()

    async def identify(self, known: str) -> tuple[str, str]:
        fields = {"name": self._name, "id": uuid.uuid4().hex, "secret": secrets.token_urlsafe(32)}
        [(has_table,)] = await self._run("SELECT to_regclass('penstock_cluster') IS NOT NULL")
        if not has_table:  # who may use it need not be able to create it
            await self._run(_TABLE)
        select = "SELECT id, secret FROM penstock_cluster WHERE name = %(name)s"
        rows = await self._run(select, fields)
        if not rows:
            if known:
                raise ConfigurationError(
                    f"the database has no cluster {self._name}, but the data directory belongs to "
                    f"cluster {known}: restore the database, or delete cluster.json in the data "
                    "directory to found a new cluster with this data"
                )
            await self._run(
                "INSERT INTO penstock_cluster (name, id, secret) "
                "VALUES (%(name)s, %(id)s, %(secret)s) ON CONFLICT DO NOTHING",
                fields,
            )
            rows = await self._run(select, fields)
        cluster, secret = rows[0]
        return cluster, secret

    async def view(self) -> ClusterView:
        [(record, epoch, in_sync, alive)] = await self._run(_VIEW, (self._name,))
        leader = LeaderRecord.from_json(json.loads(record)) if alive else None
        return ClusterView(leader, epoch, None if in_sync is None else frozenset(in_sync))

    async def campaign(self, record: LeaderRecord) -> Leadership | None:
        rows = await self._run(_CAMPAIGN, self._fields(record=json.dumps(record.to_json())))
        return Leadership(rows[0][0], frozenset(rows[0][1])) if rows else None

    async def renew(self, epoch: int) -> bool:
        return bool(await self._run(_RENEW, self._fields(epoch=epoch)))

    async def record_in_sync(self, epoch: int, members: frozenset[str]) -> bool:
        fields = self._fields(epoch=epoch, members=sorted(members))
        return bool(await self._run(_RECORD, fields))

    async def resign(self, epoch: int) -> None:
        await self._run(_RESIGN, self._fields(epoch=epoch))

    async def force(self) -> bool:
        return bool(await self._run(_FORCE, self._fields()))

    def _fields(self, **fields: Any) -> dict[str, Any]:
        return {"name": self._name, "node": self._node, "lease": self._lease, **fields}

    async def _run(self, query: LiteralString, fields: Any = None) -> list[Any]:
        loop = asyncio.get_running_loop()
        request = _Request()
        try:
            async with asyncio.timeout(self._timeout):
                return await loop.run_in_executor(
                    self._threads, self._execute, request, query, fields
                )
        except TimeoutError:
            request.abort()
            raise OSError(f"PostgreSQL: no answer for {self._timeout:g} s") from None

    def _execute(self, request: _Request, query: LiteralString, fields: Any) -> list[Any]:
        try:
            with self._psycopg.connect(self._url, autocommit=True) as connection:
                request.begin(connection.fileno())
                try:
                    cursor = connection.execute(query, fields)
                    return cursor.fetchall() if cursor.description else []
                finally:
                    request.end()
        except self._psycopg.Error as error:
            reason = str(error).partition("\n")[0]
            # libpq gives no code for a connection that was refused.
            refused = any(words in reason for words in _REFUSALS)
            raise (PermissionError if refused else OSError)(f"PostgreSQL: {reason}") from error


class _Request:
    """A query of a thread, which can be ended although the server does not answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._aborted = False

    def begin(self, fileno: int) -> None:
        with self._lock:
            if self._aborted:
                raise OSError("PostgreSQL: the connection took too long")
            self._socket = socket.socket(fileno=os.dup(fileno))

    def end(self) -> None:
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def abort(self) -> None:
        with self._lock:
            self._aborted = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
