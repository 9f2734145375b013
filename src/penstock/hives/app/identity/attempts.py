"""Failed sign-ins by login, counted in the database: all workers and the dashboards count together.

A sign-in is counted as failed when it begins, and its login's failures are deleted when it
succeeds: many at once are no way around the limit.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Final

from penstock.hives.app.domain.errors import TooManyRequests
from penstock.hives.app.repositories.pool import Connection

#: Failures, and in what time.
FAILURES: Final = 10
WINDOW: Final = timedelta(minutes=15)

_LOCK: Final = "SELECT pg_advisory_xact_lock(%s)"
_RECENT: Final = """
    SELECT at FROM sign_in_failure WHERE login_hash = %s AND at > %s ORDER BY at DESC LIMIT %s
"""
_ADD: Final = "INSERT INTO sign_in_failure (login_hash, at) VALUES (%s, %s)"
_EXPIRE: Final = "DELETE FROM sign_in_failure WHERE at <= %s"
_CLEAR: Final = "DELETE FROM sign_in_failure WHERE login_hash = %s"


class SignInAttempts:
    """Over a connection, in the transaction it is in."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def begin(self, login: str, now: datetime) -> None:
        """Count one more; raises while the login has failed too often."""
        hashed, since = _digest(login), now - WINDOW
        execute = self._connection.execute
        await execute(_LOCK, (int.from_bytes(hashed[:8], signed=True),))
        recent = await (await execute(_RECENT, (hashed, since, FAILURES))).fetchall()
        if len(recent) == FAILURES:
            wait = recent[-1]["at"] - since
            raise TooManyRequests(
                "too many wrong passwords for this login; wait a little", wait.total_seconds()
            )
        await execute(_EXPIRE, (since,))
        await execute(_ADD, (hashed, now))

    async def clear(self, login: str) -> None:
        """The login has succeeded, or has another password."""
        await self._connection.execute(_CLEAR, (_digest(login),))


def _digest(login: str) -> bytes:
    return hashlib.sha256(login.encode()).digest()
