"""What the local issuer knows of people, as rows: logins, digests of passwords and of tokens.

Tokens are random and long, so their SHA-256 is all that is kept of them: whoever reads the table
can neither sign in nor reset anything.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from penstock_hives.database import Connection
from penstock_hives.errors import TooManyRequests


@dataclass(frozen=True, slots=True)
class LocalCredential:
    uid: str
    login: str
    password_hash: str


@dataclass(frozen=True, slots=True)
class RefreshToken:
    uid: str
    expires_at: datetime
    revoked_at: datetime | None
    signed_in_at: datetime


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


_ADD: Final = """
    INSERT INTO credential (uid, login, password_hash) VALUES (%s, %s, %s)
    ON CONFLICT (login) DO NOTHING
"""
_RESETTING: Final = """
    UPDATE credential SET reset_hash = NULL, reset_expires_at = NULL, password_hash = %s
    WHERE reset_hash = %s AND reset_expires_at > %s
    RETURNING uid, login, password_hash
"""
_REFRESH: Final = """
    SELECT uid, expires_at, revoked_at, signed_in_at FROM refresh_token WHERE hash = %s
"""
_KEEP: Final = """
    INSERT INTO refresh_token (hash, uid, expires_at, signed_in_at) VALUES (%s, %s, %s, %s)
"""
_REVOKE_ALL: Final = """
    UPDATE refresh_token SET revoked_at = %s WHERE uid = %s AND revoked_at IS NULL
"""


class CredentialRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def add(self, credential: LocalCredential) -> bool:
        """Whether the login was free."""
        given = (credential.uid, credential.login, credential.password_hash)
        return (await self._connection.execute(_ADD, given)).rowcount == 1

    async def find(self, login: str) -> LocalCredential | None:
        statement = "SELECT uid, login, password_hash FROM credential WHERE login = %s"
        row = await (await self._connection.execute(statement, (login,))).fetchone()
        return None if row is None else LocalCredential(**row)

    async def expect_reset(self, login: str, hashed: bytes, until: datetime) -> bool:
        """Whether there is such a login."""
        statement = "UPDATE credential SET reset_hash = %s, reset_expires_at = %s WHERE login = %s"
        return (await self._connection.execute(statement, (hashed, until, login))).rowcount == 1

    async def resetting(self, hashed: bytes, now: datetime) -> str | None:
        """The login a reset was asked for, while it holds."""
        statement = "SELECT login FROM credential WHERE reset_hash = %s AND reset_expires_at > %s"
        row = await (await self._connection.execute(statement, (hashed, now))).fetchone()
        return row["login"] if row else None

    async def reset(
        self, hashed: bytes, password_hash: str, now: datetime
    ) -> LocalCredential | None:
        """The new password in place of the old; None, if somebody was quicker."""
        given = (password_hash, hashed, now)
        row = await (await self._connection.execute(_RESETTING, given)).fetchone()
        return None if row is None else LocalCredential(**row)

    async def refresh(self, hashed: bytes, *, lock: bool = True) -> RefreshToken | None:
        statement = f"{_REFRESH} {'FOR UPDATE' if lock else ''}"
        row = await (await self._connection.execute(statement, (hashed,))).fetchone()
        return None if row is None else RefreshToken(**row)

    async def keep(self, hashed: bytes, refresh: RefreshToken) -> None:
        given = (hashed, refresh.uid, refresh.expires_at, refresh.signed_in_at)
        await self._connection.execute(_KEEP, given)

    async def revoke(self, hashed: bytes, now: datetime) -> None:
        statement = "UPDATE refresh_token SET revoked_at = %s WHERE hash = %s"
        await self._connection.execute(statement, (now, hashed))

    async def revoke_all(self, uid: str, now: datetime) -> None:
        await self._connection.execute(_REVOKE_ALL, (now, uid))

    async def forget_expired(self, uid: str, now: datetime) -> None:
        """Refresh tokens of somebody's that have been of no use since then."""
        statement = "DELETE FROM refresh_token WHERE uid = %s AND expires_at < %s"
        await self._connection.execute(statement, (uid, now))


# Failed sign-ins by login, counted in the database: all workers and the dashboards count together.
#
# A sign-in is counted as failed when it begins, and its login's failures are deleted when it
# succeeds: many at once are no way around the limit.

#: Failures, and in what time.
MAX_FAILURES: Final = 10
FAILURE_WINDOW: Final = timedelta(minutes=15)

_LOCK: Final = "SELECT pg_advisory_xact_lock(%s)"
_RECENT: Final = """
    SELECT at FROM sign_in_failure WHERE login_hash = %s AND at > %s ORDER BY at DESC LIMIT %s
"""
_ADD_ATTEMPT: Final = "INSERT INTO sign_in_failure (login_hash, at) VALUES (%s, %s)"
_EXPIRE: Final = "DELETE FROM sign_in_failure WHERE at <= %s"
_CLEAR: Final = "DELETE FROM sign_in_failure WHERE login_hash = %s"


class SignInAttempts:
    """Over a connection, in the transaction it is in."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def begin(self, login: str, now: datetime) -> None:
        """Count one more; raises while the login has failed too often."""
        hashed, since = _digest(login), now - FAILURE_WINDOW
        execute = self._connection.execute
        await execute(_LOCK, (int.from_bytes(hashed[:8], signed=True),))
        recent = await (await execute(_RECENT, (hashed, since, MAX_FAILURES))).fetchall()
        if len(recent) == MAX_FAILURES:
            wait = recent[-1]["at"] - since
            raise TooManyRequests(
                "too many wrong passwords for this login; wait a little", wait.total_seconds()
            )
        await execute(_EXPIRE, (since,))
        await execute(_ADD_ATTEMPT, (hashed, now))

    async def clear(self, login: str) -> None:
        """The login has succeeded, or has another password."""
        await self._connection.execute(_CLEAR, (_digest(login),))


def _digest(login: str) -> bytes:
    return hashlib.sha256(login.encode()).digest()
