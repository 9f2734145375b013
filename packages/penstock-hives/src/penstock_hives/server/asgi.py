"""ASGI types, responses without a framework, and the router of a site by path prefix.

Each request passes these phases: rewrite (`/` is the page), location (the longest matching prefix),
access (a location may have a maximum of concurrent requests; more get 503 at once), content and
response headers. The server then counts and logs it (`asgi_server.py`), by the name of the
location.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

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


_NOSNIFF: Final = (b"x-content-type-options", b"nosniff")
_RETRY: Final = (b"retry-after", b"1")


@dataclass(frozen=True, slots=True)
class Location:
    name: str  #: in metrics
    prefix: str
    application: AsgiApplication
    max_requests: int | None = None  #: concurrently


class LocationRouter:
    def __init__(self, locations: Sequence[Location], rewrites: Mapping[str, str]) -> None:
        self._locations = sorted(locations, key=lambda each: -len(each.prefix))
        self._rewrites = rewrites
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        rewritten = self._rewrites.get(scope["path"])
        if rewritten is not None:
            scope["path"] = rewritten
        location = self._locate(scope["path"])
        if location is None:
            await _not_found(scope, send)
            return
        scope["location"] = location.name
        if location.max_requests is None or scope["type"] != "http":
            await location.application(scope, receive, send)
        else:
            await self._serve(location, location.max_requests, scope, receive, send)

    def _locate(self, path: str) -> Location | None:
        for location in self._locations:
            if path.startswith(location.prefix):
                return location
        return None

    async def _serve(
        self, location: Location, most: int, scope: Scope, receive: Receive, send: Send
    ) -> None:
        name = location.name
        if self._open[name] >= most:
            await send_problem(send, 503, "too many concurrent requests", [_RETRY])
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), _NOSNIFF]}
            await send(message)

        self._open[name] += 1
        try:
            await location.application(scope, receive, send_with_headers)
        finally:
            self._open[name] -= 1


async def _not_found(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await send_problem(send, 404, "not found")
