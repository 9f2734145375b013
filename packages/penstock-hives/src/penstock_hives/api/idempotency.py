"""Idempotent writes: a repetition with the same `Idempotency-Key` gets the stored response.

A key belongs to a caller and a request; with another request it is refused (422), and while the
first request runs, with 409. Successful responses are stored for a day, in the transaction of the
write, so both commit or neither. Failed requests are not stored and can be repeated. Responses with
a secret are not stored (`SECRET`).
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

from penstock_hives.api.dependencies import client_address, current_caller, get_resources
from penstock_hives.database import Connection
from penstock_hives.errors import InvalidRequest, RequestConflict, invalid_field
from penstock_hives.people.permissions import Caller

HEADER: Final = "idempotency-key"
MAX_KEY_LENGTH: Final = 200
REPLAYED: Final = "Idempotency-Replayed"
_STORED_HEADERS: Final = ("content-type", "location", "etag")
#: The `openapi_extra` of routes whose response contains a secret.
SECRET: Final = {"x-secret": True}

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class IdempotentRoute(APIRoute):
    @property
    def is_idempotent(self) -> bool:
        writes = (self.methods or set()) & {"POST", "PUT", "PATCH", "DELETE"}
        return bool(writes) and not (self.openapi_extra or {}).get("x-secret")

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        if not self.is_idempotent:
            return handle

        async def once(request: Request) -> Response:
            key = request.headers.get(HEADER)
            if key is None:
                return await handle(request)
            if not 1 <= len(key) <= MAX_KEY_LENGTH or not key.isascii() or not key.isprintable():
                raise invalid_field(HEADER, f"must be 1 to {MAX_KEY_LENGTH} printable characters")
            return await _run_once(request, await current_caller(request), key, handle)

        return once


async def _run_once(request: Request, caller: Caller, key: str, handle: Handler) -> Response:
    who = f"u{caller.id}" if caller.id is not None else f"a{client_address(request)}"
    asked = IdempotencyRequest(who, key, await _fingerprint(request))
    async with get_resources(request).pool.join_transaction() as connection:
        responses = IdempotencyRepository(connection)
        stored = await responses.find(asked)
        if stored is not None:
            return Response(stored.body, stored.status, {**stored.headers, REPLAYED: "true"})
        response = await handle(request)
        if response.status_code < 300:
            headers = {
                name: response.headers[name] for name in _STORED_HEADERS if name in response.headers
            }
            await responses.store(
                asked, StoredResponse(response.status_code, headers, bytes(response.body))
            )
        return response


async def _fingerprint(request: Request) -> bytes:
    digest = hashlib.sha256(f"{request.method} {request.url.path}?{request.url.query}\n".encode())
    digest.update(await request.body())
    return digest.digest()


_LOCK: Final = """
    SELECT pg_try_advisory_xact_lock(hashtextextended(%(caller)s || ' ' || %(key)s, 0)) AS ours
"""
_READ: Final = """
    SELECT fingerprint, status, headers, body FROM idempotency_key
    WHERE caller = %(caller)s AND key = %(key)s AND expires_at > now()
"""
_STORE: Final = """
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
    caller: str
    key: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class StoredResponse:
    status: int
    headers: Mapping[str, str]
    body: bytes


class IdempotencyRepository:
    """Table `idempotency_key`, in the transaction of the write."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def find(self, asked: IdempotencyRequest) -> StoredResponse | None:
        """The stored response; None: this transaction holds the lock of the key."""
        given = {"caller": asked.caller, "key": asked.key}
        lock = await (await self._connection.execute(_LOCK, given)).fetchone()
        if lock is None or not lock["ours"]:
            raise RequestConflict("the first request with this Idempotency-Key is still running")
        row = await (await self._connection.execute(_READ, given)).fetchone()
        if row is None:
            return None
        if bytes(row["fingerprint"]) != asked.fingerprint:
            raise InvalidRequest("this Idempotency-Key was used with another request")
        return StoredResponse(row["status"], row["headers"], bytes(row["body"]))

    async def store(self, asked: IdempotencyRequest, response: StoredResponse) -> None:
        await self._connection.execute(_SWEEP)
        await self._connection.execute(
            _STORE,
            {
                "caller": asked.caller,
                "key": asked.key,
                "fingerprint": asked.fingerprint,
                "status": response.status,
                "headers": Jsonb(dict(response.headers)),
                "body": response.body,
            },
        )
