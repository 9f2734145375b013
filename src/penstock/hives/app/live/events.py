"""Server-sent events: a stream of figures over plain HTTP, for any number of anonymous readers.

    GET /v1/live?hives=3,7      Accept: text/event-stream

    id: 5f1c09aa-41
    event: figures
    data: [{"hive_id":7,"occupancy":31,…}]

First how hives stand, then what changes. A browser that loses the connection comes back by itself
with the last id it saw; if the same worker answers and remembers, it gets what it missed, else the
whole again. Who does not take what is sent for `STALL_SECONDS` is cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet
from typing import Final

from penstock.core.logs import get_logger
from penstock.hives.app.engine.asgi import Receive, Scope, Send, header
from penstock.hives.app.live.bulletin import Bulletin, array
from penstock.hives.app.live.following import number_of, place

log = get_logger(__name__)

#: The system's and the transport's buffers are full for so long: nobody reads there.
STALL_SECONDS: Final = 60.0
_BEGIN: Final = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"access-control-allow-origin", b"*"),
        (b"x-accel-buffering", b"no"),  # proxies are to pass it on as it comes
    ],
}
_EMPTY: Final = b"[]"
_STILL_HERE: Final = b": still here\n\n"


async def stream(
    scope: Scope,
    receive: Receive,
    send: Send,
    bulletin: Bulletin,
    wanted: AbstractSet[int] | None,
    stall: float = STALL_SECONDS,
) -> None:
    """Until the reader goes, stalls, or the bulletin is closed."""
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await send(_BEGIN)
        number = number_of(header(scope, b"last-event-id"), bulletin)
        chunk = b"retry: 2000\n" + _event(bulletin, number, wanted)
        while not gone.done():
            number = bulletin.number
            async with asyncio.timeout(stall):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if bulletin.closed:
                break
            if bulletin.number == number:
                await _either(bulletin.next_issue(), gone)
            chunk = _event(bulletin, number, wanted) or _STILL_HERE
        await send({"type": "http.response.body", "body": b""})
    except TimeoutError:
        log.info("reader stalled; cut off", client=scope.get("client"))
    finally:
        gone.cancel()


def _event(bulletin: Bulletin, number: int | None, wanted: AbstractSet[int] | None) -> bytes:
    """What is new since then, as an event; nothing, if nothing is."""
    news = None if number is None else bulletin.since(number, wanted)
    if news is None:
        news = array(bulletin.whole(wanted))
    elif news == _EMPTY:
        return b""
    return b"id: %s\nevent: figures\ndata: %s\n\n" % (place(bulletin).encode(), news)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _either(issue: asyncio.Future[None], gone: asyncio.Future[None]) -> None:
    """Whichever comes first; a reader that goes wakes the one who waits for news."""

    def wake(_: asyncio.Future[None]) -> None:
        if not issue.done():
            issue.set_result(None)

    gone.add_done_callback(wake)
    try:
        await issue
    finally:
        gone.remove_done_callback(wake)
