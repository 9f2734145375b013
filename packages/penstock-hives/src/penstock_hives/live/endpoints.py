"""`/v1/live` in its three forms, by what the client asks for: a socket, a stream or an answer."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Set as AbstractSet
from typing import Any, Final
from urllib.parse import parse_qs

from penstock.core.logs import get_logger
from penstock.core.units import parse_count
from penstock_hives.live.change_feed import ChangeFeed, encode_array
from penstock_hives.server.asgi import (
    AsgiApplication,
    Receive,
    Scope,
    Send,
    get_header,
    send_problem,
    send_response,
)

LIVE_PATH: Final = "/v1/live"
#: Streams and sockets one worker holds: about 50 KB each.
MAX_STREAMS: Final = 5000
_RETRY: Final = (b"retry-after", b"5")


def live_endpoint(bulletin: ChangeFeed, most: int = MAX_STREAMS) -> AsgiApplication:
    """Streams beyond the limit are refused with 503; polling still answers."""
    open_now = 0

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal open_now
        as_socket = scope["type"] == "websocket"
        if not as_socket and scope["method"] not in ("GET", "HEAD"):
            await send_problem(send, 405, "figures are read only", [(b"allow", b"GET, HEAD")])
            return
        try:
            hives = parse_hives_query(scope["query_string"])
        except InvalidHiveList as error:
            await (_refused(send) if as_socket else send_problem(send, 422, str(error)))
            return
        if not as_socket and b"text/event-stream" not in (get_header(scope, b"accept") or b""):
            await serve_poll(scope, send, bulletin, hives)
            return
        if open_now >= most:
            busy = send_problem(send, 503, "too many streams are open here; poll instead", [_RETRY])
            await (_refused(send) if as_socket else busy)
            return
        open_now += 1
        try:
            if as_socket:
                await serve_websocket(scope, receive, send, bulletin)
            else:
                await serve_event_stream(scope, receive, send, bulletin, hives)
        finally:
            open_now -= 1

    return application


async def _refused(send: Send) -> None:
    """Before it is accepted, a socket that is closed is one that is refused."""
    await send({"type": "websocket.close", "code": 1013})


# Which hives a stream follows, and from where: read from a request, within limits.

#: Hives one stream may name; who wants more wants all.
MAX_HIVES: Final = 500


class InvalidHiveList(ValueError):
    """Not a list of hives."""


def parse_hives_query(query: bytes) -> frozenset[int] | None:
    """`hives=1,2,3`; none: all of them."""
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("hives")
    if given is None:
        return None
    return parse_hives(part for text in given for part in text.split(","))


def parse_hives(parts: object) -> frozenset[int]:
    """Numbers of hives, spelled as text or numbers."""
    try:
        found = frozenset(int(part) for part in parts)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise InvalidHiveList("hives should be numbers, with commas between") from None
    if len(found) > MAX_HIVES or any(not 0 < hive < 2**63 for hive in found):
        raise InvalidHiveList(f"hives should be at most {MAX_HIVES} positive numbers")
    return found


def resume_token(bulletin: ChangeFeed) -> str:
    """Where the bulletin is, for who comes back."""
    return f"{bulletin.name}-{bulletin.number}"


def parse_resume_token(told: bytes | None, bulletin: ChangeFeed) -> int | None:
    """The issue a client saw last, if it is one of this bulletin's."""
    name, _, number = (told or b"").decode("latin-1").partition("-")
    return parse_count(number) if name == bulletin.name else None


# Polling: the same figures for who can have neither stream nor socket.
#
#     GET /v1/live?hives=3,7      If-None-Match: "…"
#
# The entity tag is made of what is told, so that any worker knows it again. 304 when nothing
# changed.


async def serve_poll(
    scope: Scope, send: Send, bulletin: ChangeFeed, wanted: AbstractSet[int] | None
) -> None:
    figures = sorted(bulletin.whole(wanted), key=lambda figure: figure.hive)
    text = encode_array(figures)
    tag = b'"%s"' % hashlib.blake2b(text, digest_size=12).hexdigest().encode()
    headers = [
        (b"etag", tag),
        (b"cache-control", b"no-cache"),
        (b"access-control-allow-origin", b"*"),
        (b"vary", b"accept"),
    ]
    if tag in (get_header(scope, b"if-none-match") or b""):
        await send_response(send, 304, headers)
        return
    body = b'{"figures":%s,"at":"%s"}' % (text, resume_token(bulletin).encode())
    headers += [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send_response(send, 200, headers, body)


# Server-sent events: a stream of figures over plain HTTP, for any number of anonymous readers.
#
#     GET /v1/live?hives=3,7      Accept: text/event-stream
#
#     id: 5f1c09aa-41
#     event: figures
#     data: [{"hive_id":7,"occupancy":31,…}]
#
# First how hives stand, then what changes. A browser that loses the connection comes back by itself
# with the last id it saw; if the same worker answers and remembers, it gets what it missed, else
# the whole again. Who does not take what is sent for `STALL_SECONDS` is cut off.

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


async def serve_event_stream(
    scope: Scope,
    receive: Receive,
    send: Send,
    bulletin: ChangeFeed,
    wanted: AbstractSet[int] | None,
    stall: float = STALL_SECONDS,
) -> None:
    """Until the reader goes, stalls, or the bulletin is closed."""
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await send(_BEGIN)
        number = parse_resume_token(get_header(scope, b"last-event-id"), bulletin)
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


def _event(bulletin: ChangeFeed, number: int | None, wanted: AbstractSet[int] | None) -> bytes:
    """What is new since then, as an event; nothing, if nothing is."""
    news = None if number is None else bulletin.since(number, wanted)
    if news is None:
        news = encode_array(bulletin.whole(wanted))
    elif news == _EMPTY:
        return b""
    return b"id: %s\nevent: figures\ndata: %s\n\n" % (resume_token(bulletin).encode(), news)


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


# WebSockets: for apps that follow some hives now and others a moment later.
#
#     -> {"subscribe": [3, 7]}        <- {"figures": [{"hive_id": 3, …}, {"hive_id": 7, …}], "at":
#     …}
#     -> {"unsubscribe": [3]}         <- {"figures": [{"hive_id": 7, …}], "at": …}   as they change
#
# What cannot be read is answered with `{"error": …}`, and nothing changes. A client that does not
# take what is sent misses figures, as a slow stream does; one that stalls is closed. When the
# worker drains it is closed with 1012, *service restart*: connect again.

#: What a client may say at once.
MAX_MESSAGE_BYTES: Final = 16 * 1024
_RESTART: Final = 1012
_STALLED: Final = 1008


class LiveWebSocket:
    """One client: what it follows, and how far it was told."""

    def __init__(self, receive: Receive, send: Send, bulletin: ChangeFeed) -> None:
        self._receive = receive
        self._send = send
        self._bulletin = bulletin
        self._wanted: set[int] = set()
        self._number = bulletin.number

    async def serve(self, stall: float = STALL_SECONDS) -> None:
        if (await self._receive())["type"] != "websocket.connect":
            return
        await self._send({"type": "websocket.accept"})
        listening = asyncio.create_task(self._listen())
        try:
            await self._tell(listening, stall)
        except TimeoutError:
            await self._send({"type": "websocket.close", "code": _STALLED})
        finally:
            listening.cancel()

    async def _tell(self, listening: asyncio.Task[None], stall: float) -> None:
        while not listening.done():
            issue = self._bulletin.next_issue()
            await asyncio.wait({issue, listening}, return_when=asyncio.FIRST_COMPLETED)
            issue.cancel()
            if self._bulletin.closed:
                await self._send({"type": "websocket.close", "code": _RESTART})
                return
            news = self._bulletin.since(self._number, self._wanted)
            self._number = self._bulletin.number
            if news is None:
                news = encode_array(self._bulletin.whole(self._wanted))
            if news != b"[]":
                async with asyncio.timeout(stall):
                    await self._say(news)

    async def _listen(self) -> None:
        while (event := await self._receive())["type"] == "websocket.receive":
            word = event.get("text") or (event.get("bytes") or b"").decode(errors="replace")
            try:
                new = self._heed(word)
            except InvalidHiveList as error:
                await self._send(
                    {"type": "websocket.send", "text": json.dumps({"error": str(error)})}
                )
            else:
                if new:
                    await self._say(encode_array(self._bulletin.whole(new)))

    def _heed(self, word: str) -> frozenset[int]:
        """Do as told; which hives are followed that were not."""
        try:
            told: Any = json.loads(word) if len(word) <= MAX_MESSAGE_BYTES else None
        except ValueError:
            told = None
        if not isinstance(told, dict) or not told.keys() <= {"subscribe", "unsubscribe"}:
            raise InvalidHiveList('should be {"subscribe": [1, 2]} or {"unsubscribe": [1]}')
        more, fewer = (
            parse_hives(told.get("subscribe", ())),
            parse_hives(told.get("unsubscribe", ())),
        )
        after = (self._wanted | more) - fewer
        if len(after) > MAX_HIVES:
            raise InvalidHiveList(f"at most {MAX_HIVES} hives at a time")
        new = frozenset(after - self._wanted)
        self._wanted = after
        return new

    async def _say(self, figures: bytes) -> None:
        text = f'{{"figures":{figures.decode()},"at":"{resume_token(self._bulletin)}"}}'
        await self._send({"type": "websocket.send", "text": text})


async def serve_websocket(scope: Scope, receive: Receive, send: Send, bulletin: ChangeFeed) -> None:
    await LiveWebSocket(receive, send, bulletin).serve()
