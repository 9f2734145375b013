"""ASGI's words, as types; and the few responses that need no framework."""

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
    """The first header of that name, which is to be in lower case."""
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


# The site: which part answers which request, and what every request passes on its way.
#
# The phases are fixed, and each has its place here:
#
# 1. *rewrite*: names that stand for others (`/` is the page);
# 2. *locate*: the location whose path is the longest beginning of what is asked for;
# 3. *access*: each location takes so many requests at a time, and refuses more with 503 at once:
#    a queue would only make everybody late. Who may do what is asked further in, by the API;
# 4. *content*: the location answers;
# 5. *filters*: what every response gets, whoever made it;
# 6. *log*: answers by location and class are counted, slow ones told of.
#
# Streams and pages from memory cost microseconds; only the API may be slow.

log = get_logger(__name__)

#: An answer that took longer is told of.
SLOW_SECONDS: Final = 2.0
_FILTERED: Final = (b"x-content-type-options", b"nosniff")
_RETRY: Final = (b"retry-after", b"1")


@dataclass(frozen=True, slots=True)
class Location:
    """A part of the site. One that is quick answers for itself: nothing is wrapped around it."""

    prefix: str
    answers: AsgiApplication
    most: int | None = None  #: requests at a time
    quick: bool = False


class LocationRouter:
    """An application made of locations."""

    def __init__(self, locations: Sequence[Location], rewrites: Mapping[str, str]) -> None:
        self._locations = sorted(locations, key=lambda each: -len(each.prefix))
        self._rewrites = rewrites
        self._open: Counter[str] = Counter()
        self.answered: Counter[tuple[str, str]] = Counter()  #: by location and class of status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        rewritten = self._rewrites.get(scope["path"])
        if rewritten is not None:
            scope["path"] = rewritten
        location = self._locate(scope["path"])
        if location is None:
            await _nowhere(scope, send)
        elif location.quick or scope["type"] != "http":
            await location.answers(scope, receive, send)
        else:
            await self._pass(location, scope, receive, send)

    def _locate(self, path: str) -> Location | None:
        for location in self._locations:
            if path.startswith(location.prefix):
                return location
        return None

    async def _pass(self, location: Location, scope: Scope, receive: Receive, send: Send) -> None:
        """Access, content, filters, log."""
        name = location.prefix
        if location.most is not None and self._open[name] >= location.most:
            self.answered[name, "refused"] += 1
            await send_problem(send, 503, "too many requests at this moment", [_RETRY])
            return
        began = time.monotonic()
        status = 0

        async def filtered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), _FILTERED]}
            await send(message)

        self._open[name] += 1
        try:
            await location.answers(scope, receive, filtered)
        finally:
            self._open[name] -= 1
            self.answered[name, f"{status // 100}xx"] += 1
            if (took := time.monotonic() - began) > SLOW_SECONDS:
                log.warning(
                    "slow answer", path=scope["path"], status=status, seconds=round(took, 2)
                )


async def _nowhere(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await send_problem(send, 404, "there is nothing at this address")
