"""Writes that may be sent again: the same `Idempotency-Key` gets the same answer.

A key belongs to a caller and a request; with another request it is refused (422), and while the
first is being answered it is told to wait (409). What succeeded is kept for a day; what failed is
not, so that it may be tried again. The answer is kept in the transaction that does what was asked:
wherever a process or the database dies, both are there or neither is. Answers that hold a secret
are not kept (`SECRET`): there a key means nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from penstock.hives.app.api.caller import current
from penstock.hives.app.api.context import resources
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.errors import Fault, Invalid
from penstock.hives.app.repositories.idempotency import Asked, IdempotencyRepository, Kept

HEADER: Final = "idempotency-key"
LONGEST: Final = 200
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
            if not 1 <= len(key) <= LONGEST or not key.isascii() or not key.isprintable():
                raise Invalid("no such key", [Fault(HEADER, f"1 to {LONGEST} printable letters")])
            return await _once(request, await current(request), key, handle)

        return once


async def _once(request: Request, caller: Caller, key: str, handle: Handler) -> Response:
    address = request.client.host if request.client else "unknown"
    who = f"u{caller.id}" if caller.id is not None else f"a{address}"
    asked = Asked(who, key, await _fingerprint(request))
    async with resources(request).pool.joined() as connection:
        answers = IdempotencyRepository(connection)
        kept = await answers.claim(asked)
        if kept is not None:
            return Response(kept.body, kept.status, {**kept.headers, REPLAYED: "true"})
        response = await handle(request)
        if response.status_code < 300:
            headers = {
                name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers
            }
            await answers.keep(asked, Kept(response.status_code, headers, bytes(response.body)))
        return response


async def _fingerprint(request: Request) -> bytes:
    digest = hashlib.sha256(f"{request.method} {request.url.path}?{request.url.query}\n".encode())
    digest.update(await request.body())
    return digest.digest()
