"""Credentials, refresh tokens and failed sign-ins of the local issuer in SQL.

Tokens are random and long, so only their SHA-256 is stored. Failures are counted per login, for all
workers and the dashboards together: a sign-in counts as failed when it begins, and success clears
the count, so parallel attempts cannot exceed the limit.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from penstock_hives.database import Connection, fetch_one
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


#: The least time between two mails of a kind to a user.
MAIL_EVERY: Final = timedelta(minutes=1)


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
_CONFIRM: Final = """
    UPDATE credential c SET login = c.new_login, new_login = NULL, new_login_hash = NULL,
        new_login_expires_at = NULL, reset_hash = NULL, reset_expires_at = NULL
    FROM (SELECT uid, login FROM credential
          WHERE new_login_hash = %s AND new_login_expires_at > %s FOR UPDATE) AS held
    WHERE c.uid = held.uid AND NOT EXISTS (SELECT FROM credential o WHERE o.login = c.new_login)
    RETURNING held.login AS old, c.login AS new
"""
_REFRESH: Final = """
    SELECT uid, expires_at, revoked_at, signed_in_at FROM refresh_token WHERE hash = %s
"""
_ADD_REFRESH: Final = """
    INSERT INTO refresh_token (hash, uid, expires_at, signed_in_at) VALUES (%s, %s, %s, %s)
"""
_REVOKE_ALL: Final = """
    UPDATE refresh_token SET revoked_at = %s WHERE uid = %s AND revoked_at IS NULL
"""


class CredentialRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def add(self, credential: LocalCredential) -> bool:
        """False if the login exists."""
        given = (credential.uid, credential.login, credential.password_hash)
        return (await self._connection.execute(_ADD, given)).rowcount == 1

    async def find(self, login: str) -> LocalCredential | None:
        statement = "SELECT uid, login, password_hash FROM credential WHERE login = %s"
        return await fetch_one(self._connection, LocalCredential, statement, (login,))

    async def locale(self, login: str) -> str:
        """Of the user; English for one who has not used the application yet."""
        statement = """
            SELECT u.locale FROM credential c JOIN app_user u ON u.firebase_uid = c.uid
            WHERE c.login = %s
        """
        row = await (await self._connection.execute(statement, (login,))).fetchone()
        return "en" if row is None else str(row["locale"])

    async def of_uid(self, uid: str) -> LocalCredential | None:
        statement = "SELECT uid, login, password_hash FROM credential WHERE uid = %s"
        return await fetch_one(self._connection, LocalCredential, statement, (uid,))

    async def set_password(self, uid: str, password_hash: str) -> None:
        """A link to reset the old password is not valid any more."""
        statement = """
            UPDATE credential SET password_hash = %s, reset_hash = NULL, reset_expires_at = NULL
            WHERE uid = %s
        """
        await self._connection.execute(statement, (password_hash, uid))

    async def expect_login(self, uid: str, login: str, hashed: bytes, until: datetime) -> bool:
        """False if a link was sent within the last minute."""
        statement = """
            UPDATE credential SET new_login = %s, new_login_hash = %s, new_login_expires_at = %s
            WHERE uid = %s AND coalesce(new_login_expires_at <= %s, true)
        """
        given = (login, hashed, until, uid, until - MAIL_EVERY)
        return (await self._connection.execute(statement, given)).rowcount == 1

    async def confirm_login(self, hashed: bytes, now: datetime) -> tuple[str, str] | None:
        """The old and the new login; None if the token is not valid or the login is taken."""
        row = await (await self._connection.execute(_CONFIRM, (hashed, now))).fetchone()
        return (row["old"], row["new"]) if row else None

    async def expect_reset(self, login: str, hashed: bytes, until: datetime) -> bool:
        """False if the login does not exist, or a link was sent within the last minute."""
        statement = """
            UPDATE credential SET reset_hash = %s, reset_expires_at = %s
            WHERE login = %s AND coalesce(reset_expires_at <= %s, true)
        """
        given = (hashed, until, login, until - MAIL_EVERY)
        return (await self._connection.execute(statement, given)).rowcount == 1

    async def resetting(self, hashed: bytes, now: datetime) -> str | None:
        """The login of a valid reset token."""
        statement = "SELECT login FROM credential WHERE reset_hash = %s AND reset_expires_at > %s"
        row = await (await self._connection.execute(statement, (hashed, now))).fetchone()
        return row["login"] if row else None

    async def reset(
        self, hashed: bytes, password_hash: str, now: datetime
    ) -> LocalCredential | None:
        """Replace the password; None if the reset token is not valid any more."""
        given = (password_hash, hashed, now)
        return await fetch_one(self._connection, LocalCredential, _RESETTING, given)

    async def refresh(self, hashed: bytes, *, lock: bool = True) -> RefreshToken | None:
        statement = f"{_REFRESH} {'FOR UPDATE' if lock else ''}"
        return await fetch_one(self._connection, RefreshToken, statement, (hashed,))

    async def add_refresh(self, hashed: bytes, refresh: RefreshToken) -> None:
        given = (hashed, refresh.uid, refresh.expires_at, refresh.signed_in_at)
        await self._connection.execute(_ADD_REFRESH, given)

    async def revoke(self, hashed: bytes, now: datetime) -> None:
        statement = "UPDATE refresh_token SET revoked_at = %s WHERE hash = %s"
        await self._connection.execute(statement, (now, hashed))

    async def revoke_all(self, uid: str, now: datetime) -> None:
        await self._connection.execute(_REVOKE_ALL, (now, uid))

    async def delete_expired(self, uid: str, now: datetime) -> None:
        statement = "DELETE FROM refresh_token WHERE uid = %s AND expires_at < %s"
        await self._connection.execute(statement, (uid, now))


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
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def begin(self, login: str, now: datetime) -> None:
        """Count an attempt; raises `TooManyRequests` after too many failures."""
        hashed, since = digest(login), now - FAILURE_WINDOW
        execute = self._connection.execute
        await execute(_LOCK, (int.from_bytes(hashed[:8], signed=True),))
        recent = await (await execute(_RECENT, (hashed, since, MAX_FAILURES))).fetchall()
        if len(recent) == MAX_FAILURES:
            wait = recent[-1]["at"] - since
            raise TooManyRequests(
                "too many wrong passwords for this login: try again later", wait.total_seconds()
            )
        await execute(_EXPIRE, (since,))
        await execute(_ADD_ATTEMPT, (hashed, now))

    async def clear(self, login: str) -> None:
        await self._connection.execute(_CLEAR, (digest(login),))
