"""Writes that may be sent again: the same `Idempotency-Key` gets the same answer.

A key belongs to a caller and a request; with another request it is refused (422), and while the
first is being answered it is told to wait (409). What succeeded is kept for a day; what failed is
not, so that it may be tried again. The answer is kept in the transaction that does what was asked:
wherever a process or the database dies, both are there or neither is. Answers that hold a secret
are not kept (`SECRET`): there a key means nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastapi.routing import APIRoute
from psycopg.types.json import Jsonb
from starlette.requests import Request
from starlette.responses import Response

from penstock_hives.api.dependencies import current_caller, get_resources
from penstock_hives.database import Connection
from penstock_hives.errors import FieldError, InvalidRequest, RequestConflict
from penstock_hives.people.permissions import Caller

HEADER: Final = "idempotency-key"
MAX_KEY_LENGTH: Final = 200
REPLAYED: Final = "Idempotency-Replayed"
_KEPT_HEADERS: Final = ("content-type", "location", "etag")
#: Of a route, as its `openapi_extra`: its answer is shown this once.
SECRET: Final = {"x-secret": True}

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class IdempotentRoute(APIRoute):
    @property
    def keeps(self) -> bool:
        writes = (self.methods or set()) & {"POST", "PUT", "PATCH", "DELETE"}
        return bool(writes) and not (self.openapi_extra or {}).get("x-secret")

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        if not self.keeps:
            return handle

        async def once(request: Request) -> Response:
            key = request.headers.get(HEADER)
            if key is None:
                return await handle(request)
            if not 1 <= len(key) <= MAX_KEY_LENGTH or not key.isascii() or not key.isprintable():
                raise InvalidRequest(
                    "no such key", [FieldError(HEADER, f"1 to {MAX_KEY_LENGTH} printable letters")]
                )
            return await _run_once(request, await current_caller(request), key, handle)

        return once


async def _run_once(request: Request, caller: Caller, key: str, handle: Handler) -> Response:
    address = request.client.host if request.client else "unknown"
    who = f"u{caller.id}" if caller.id is not None else f"a{address}"
    asked = IdempotencyRequest(who, key, await _fingerprint(request))
    async with get_resources(request).pool.joined() as connection:
        answers = IdempotencyRepository(connection)
        kept = await answers.claim(asked)
        if kept is not None:
            return Response(kept.body, kept.status, {**kept.headers, REPLAYED: "true"})
        response = await handle(request)
        if response.status_code < 300:
            headers = {
                name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers
            }
            await answers.keep(
                asked, StoredResponse(response.status_code, headers, bytes(response.body))
            )
        return response


async def _fingerprint(request: Request) -> bytes:
    digest = hashlib.sha256(f"{request.method} {request.url.path}?{request.url.query}\n".encode())
    digest.update(await request.body())
    return digest.digest()


# Table `idempotency_key`: answers that were given, for who asks again.

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
class IdempotencyRequest:
    """What a key stands for: a request of a caller's."""

    caller: str
    key: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class StoredResponse:
    status: int
    headers: Mapping[str, str]
    body: bytes


class IdempotencyRepository:
    """Over the connection of the transaction that does what is asked."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def claim(self, asked: IdempotencyRequest) -> StoredResponse | None:
        """Nothing: it is this transaction's to answer. Else what was answered before."""
        given = {"caller": asked.caller, "key": asked.key}
        lock = await (await self._connection.execute(_LOCK, given)).fetchone()
        if lock is None or not lock["ours"]:
            raise RequestConflict("the first request with this Idempotency-Key is being answered")
        row = await (await self._connection.execute(_READ, given)).fetchone()
        if row is None:
            return None
        if bytes(row["fingerprint"]) != asked.fingerprint:
            raise InvalidRequest("this Idempotency-Key belongs to another request")
        return StoredResponse(row["status"], row["headers"], bytes(row["body"]))

    async def keep(self, asked: IdempotencyRequest, answer: StoredResponse) -> None:
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
