"""Table `idempotency_key`: answers that were given, for who asks again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from psycopg.types.json import Jsonb

from penstock.hives.app.domain.errors import Conflict, Invalid
from penstock.hives.app.repositories.pool import Connection

_CLAIM: Final = """
    INSERT INTO idempotency_key AS held (caller, key, fingerprint, expires_at)
    VALUES (%(caller)s, %(key)s, %(fingerprint)s, now() + interval '1 minute')
    ON CONFLICT (caller, key) DO UPDATE SET
        fingerprint = excluded.fingerprint, expires_at = excluded.expires_at,
        status = NULL, headers = NULL, body = NULL
    WHERE held.expires_at < now()
    RETURNING key
"""
_READ: Final = """
    SELECT fingerprint, status, headers, body FROM idempotency_key
    WHERE caller = %(caller)s AND key = %(key)s
"""
_KEEP: Final = """
    UPDATE idempotency_key SET status = %(status)s, headers = %(headers)s, body = %(body)s,
        expires_at = now() + interval '1 day'
    WHERE caller = %(caller)s AND key = %(key)s
"""
_SWEEP: Final = """
    DELETE FROM idempotency_key WHERE ctid IN (
        SELECT ctid FROM idempotency_key WHERE expires_at < now() LIMIT 20 FOR UPDATE SKIP LOCKED)
"""


@dataclass(frozen=True, slots=True)
class Kept:
    status: int
    headers: Mapping[str, str]
    body: bytes


class IdempotencyRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def claim(self, caller: str, key: str, fingerprint: bytes) -> Kept | None:
        """Nothing: it is the caller's to answer. Else what was answered before."""
        given = {"caller": caller, "key": key, "fingerprint": fingerprint}
        await self._connection.execute(_SWEEP)
        if await (await self._connection.execute(_CLAIM, given)).fetchone() is not None:
            return None
        row = await (await self._connection.execute(_READ, given)).fetchone()
        if row is None:  # released between the two statements
            raise Conflict("this key was just let go of: send the request again")
        if bytes(row["fingerprint"]) != fingerprint:
            raise Invalid("this Idempotency-Key belongs to another request")
        if row["status"] is None:
            raise Conflict("the first request with this Idempotency-Key is being answered")
        return Kept(row["status"], row["headers"], bytes(row["body"]))

    async def keep(
        self, caller: str, key: str, status: int, headers: Mapping[str, str], body: bytes
    ) -> None:
        given = {"caller": caller, "key": key, "status": status, "body": body}
        await self._connection.execute(_KEEP, {**given, "headers": Jsonb(dict(headers))})

    async def release(self, caller: str, key: str) -> None:
        statement = "DELETE FROM idempotency_key WHERE caller = %s AND key = %s AND status IS NULL"
        await self._connection.execute(statement, (caller, key))
