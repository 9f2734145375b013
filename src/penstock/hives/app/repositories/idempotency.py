"""Table `idempotency_key`: answers that were given, for who asks again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from psycopg.types.json import Jsonb

from penstock.hives.app.domain.errors import Conflict, Invalid
from penstock.hives.app.repositories.pool import Connection

_LOCK: Final = """
    SELECT pg_try_advisory_xact_lock(hashtextextended(%(caller)s || ' ' || %(key)s, 0)) AS ours
"""
_READ: Final = """
    SELECT fingerprint, status, headers, body FROM idempotency_key
    WHERE caller = %(caller)s AND key = %(key)s AND expires_at > now()
"""
_KEEP: Final = """
    INSERT INTO idempotency_key (caller, key, fingerprint, status, headers, body, expires_at)
    VALUES (%(caller)s, %(key)s, %(fingerprint)s, %(status)s, %(headers)s, %(body)s,
        now() + interval '1 day')
    ON CONFLICT (caller, key) DO UPDATE SET
        fingerprint = excluded.fingerprint, expires_at = excluded.expires_at,
        status = excluded.status, headers = excluded.headers, body = excluded.body
"""
_SWEEP: Final = """
    DELETE FROM idempotency_key WHERE ctid IN (
        SELECT ctid FROM idempotency_key WHERE expires_at < now() LIMIT 20 FOR UPDATE SKIP LOCKED)
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a key stands for: a request of a caller's."""

    caller: str
    key: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Kept:
    status: int
    headers: Mapping[str, str]
    body: bytes


class IdempotencyRepository:
    """Over the connection of the transaction that does what is asked."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def claim(self, asked: Asked) -> Kept | None:
        """Nothing: it is this transaction's to answer. Else what was answered before."""
        given = {"caller": asked.caller, "key": asked.key}
        lock = await (await self._connection.execute(_LOCK, given)).fetchone()
        if lock is None or not lock["ours"]:
            raise Conflict("the first request with this Idempotency-Key is being answered")
        row = await (await self._connection.execute(_READ, given)).fetchone()
        if row is None:
            return None
        if bytes(row["fingerprint"]) != asked.fingerprint:
            raise Invalid("this Idempotency-Key belongs to another request")
        return Kept(row["status"], row["headers"], bytes(row["body"]))

    async def keep(self, asked: Asked, answer: Kept) -> None:
        await self._connection.execute(_SWEEP)
        await self._connection.execute(
            _KEEP,
            {
                "caller": asked.caller,
                "key": asked.key,
                "fingerprint": asked.fingerprint,
                "status": answer.status,
                "headers": Jsonb(dict(answer.headers)),
                "body": answer.body,
            },
        )
