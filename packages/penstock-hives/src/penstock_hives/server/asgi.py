"""ASGI types, responses without a framework, and the router of a site by path prefix.

Each request passes these phases: rewrite (`/` is the page), location (the longest matching prefix),
access (a location has a maximum of concurrent requests; more get 503 at once), content, response
headers, and metrics with a log of slow requests. Unwrapped locations skip all but the first two.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.logs import get_logger
from penstock_hives.api.problems import PROBLEMS

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApplication = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]


def get_header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of that name, given in lower case."""
    for each, value in scope["headers"]:
        if each == name:
            found: bytes = value
            return found
    return None


async def send_response(send: Send, status: int, headers: Headers, body: bytes = b"") -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


async def send_problem(send: Send, status: int, detail: str, headers: Headers = ()) -> None:
    problem = PROBLEMS.response(status, detail)
    await send_response(send, status, [*problem.raw_headers, *headers], bytes(problem.body))


log = get_logger(__name__)

#: Slower requests are logged.
SLOW_SECONDS: Final = 2.0
_NOSNIFF: Final = (b"x-content-type-options", b"nosniff")
_RETRY: Final = (b"retry-after", b"1")


@dataclass(frozen=True, slots=True)
class Location:
    prefix: str
    application: AsgiApplication
    max_requests: int | None = None  #: concurrently
    unwrapped: bool = False


class LocationRouter:
    def __init__(self, locations: Sequence[Location], rewrites: Mapping[str, str]) -> None:
        self._locations = sorted(locations, key=lambda each: -len(each.prefix))
        self._rewrites = rewrites
        self._open: Counter[str] = Counter()
        self.responses: Counter[tuple[str, str]] = Counter()  #: by prefix and class of status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        rewritten = self._rewrites.get(scope["path"])
        if rewritten is not None:
            scope["path"] = rewritten
        location = self._locate(scope["path"])
        if location is None:
            await _not_found(scope, send)
        elif location.unwrapped or scope["type"] != "http":
            await location.application(scope, receive, send)
        else:
            await self._serve(location, scope, receive, send)

    def _locate(self, path: str) -> Location | None:
        for location in self._locations:
            if path.startswith(location.prefix):
                return location
        return None

    async def _serve(self, location: Location, scope: Scope, receive: Receive, send: Send) -> None:
        name = location.prefix
        if location.max_requests is not None and self._open[name] >= location.max_requests:
            self.responses[name, "refused"] += 1
            await send_problem(send, 503, "too many concurrent requests", [_RETRY])
            return
        began = time.monotonic()
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), _NOSNIFF]}
            await send(message)

        self._open[name] += 1
        try:
            await location.application(scope, receive, send_with_headers)
        finally:
            self._open[name] -= 1
            self.responses[name, f"{status // 100}xx"] += 1
            if (took := time.monotonic() - began) > SLOW_SECONDS:
                log.warning(
                    "slow request", path=scope["path"], status=status, seconds=round(took, 2)
                )


async def _not_found(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await send_problem(send, 404, "not found")
