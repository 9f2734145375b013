"""`/v1/live`: occupancy as WebSocket, server-sent events or a single response.

    GET /v1/live?hives=3,7      Accept: text/event-stream

    id: 5f1c09aa-41
    event: figures
    data: [{"hive_id":7,"occupancy":31,…}]

A stream begins with the current state; changes follow. A browser that reconnects sends the last id;
the same worker then continues from there, another one starts with the current state again.

    -> {"subscribe": [3, 7]}        <- {"figures": [{"hive_id": 3, …}, {"hive_id": 7, …}], "at": …}
    -> {"unsubscribe": [3]}         <- {"figures": [{"hive_id": 7, …}], "at": …}   on each change

Invalid WebSocket messages get `{"error": …}`. A client that does not read for `STALL_SECONDS` is
disconnected. A draining worker closes WebSockets with code 1012, service restart. Polling has an
ETag that all workers compute alike.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Set as AbstractSet
from typing import Any, Final
from urllib.parse import parse_qs

from penstock.core.logs import get_logger
from penstock.core.units import parse_count
from penstock_hives.encoding import etag_of
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
#: Streams and WebSockets of one worker, about 50 KB each.
MAX_STREAMS: Final = 5000
_RETRY: Final = (b"retry-after", b"5")


def live_endpoint(feed: ChangeFeed, max_streams: int = MAX_STREAMS) -> AsgiApplication:
    """Streams beyond the limit are refused with 503; polling still answers."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        as_socket = scope["type"] == "websocket"
        if not as_socket and scope["method"] not in ("GET", "HEAD"):
            await send_problem(send, 405, "use GET or HEAD", [(b"allow", b"GET, HEAD")])
            return
        try:
            hives = parse_hives_query(scope["query_string"])
        except InvalidHiveList as error:
            await (_refused(send) if as_socket else send_problem(send, 422, str(error)))
            return
        if not as_socket and b"text/event-stream" not in (get_header(scope, b"accept") or b""):
            await serve_poll(scope, send, feed, hives)
            return
        if feed.streams >= max_streams:
            busy = send_problem(send, 503, "too many open streams; poll instead", [_RETRY])
            await (_refused(send) if as_socket else busy)
            return
        feed.streams += 1
        try:
            if as_socket:
                await serve_websocket(scope, receive, send, feed)
            else:
                await serve_event_stream(scope, receive, send, feed, hives)
        finally:
            feed.streams -= 1

    return application


async def _refused(send: Send) -> None:
    """Closing before accepting refuses the WebSocket."""
    await send({"type": "websocket.close", "code": 1013})


#: Hives that one stream may name.
MAX_HIVES: Final = 500


class InvalidHiveList(ValueError):
    """An invalid list of hive ids."""


def parse_hives_query(query: bytes) -> frozenset[int] | None:
    """`hives=1,2,3`; None: all hives."""
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("hives")
    if given is None:
        return None
    return parse_hives(part for text in given for part in text.split(","))


def parse_hives(parts: object) -> frozenset[int]:
    """Ids as strings or numbers."""
    try:
        found = frozenset(int(part) for part in parts)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise InvalidHiveList("hives must be ids, separated by commas") from None
    if len(found) > MAX_HIVES or any(not 0 < hive < 2**63 for hive in found):
        raise InvalidHiveList(f"hives must be at most {MAX_HIVES} positive ids")
    return found


def resume_token(feed: ChangeFeed) -> str:
    return f"{feed.name}-{feed.number}"


def parse_resume_token(token: bytes | None, feed: ChangeFeed) -> int | None:
    """The last batch that the client received, if it is of this worker."""
    name, _, number = (token or b"").decode("latin-1").partition("-")
    return parse_count(number) if name == feed.name else None


async def serve_poll(
    scope: Scope, send: Send, feed: ChangeFeed, wanted: AbstractSet[int] | None
) -> None:
    figures = sorted(feed.current(wanted), key=lambda figure: figure.hive)
    text = encode_array(figures)
    tag = etag_of(text).encode()
    headers = [
        (b"etag", tag),
        (b"cache-control", b"no-cache"),
        (b"access-control-allow-origin", b"*"),
        (b"vary", b"accept"),
    ]
    if tag in (get_header(scope, b"if-none-match") or b""):
        await send_response(send, 304, headers)
        return
    body = b'{"figures":%s,"at":"%s"}' % (text, resume_token(feed).encode())
    headers += [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send_response(send, 200, headers, body)


log = get_logger(__name__)

#: How long the buffers of a client may stay full.
STALL_SECONDS: Final = 60.0
_BEGIN: Final = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"access-control-allow-origin", b"*"),
        (b"x-accel-buffering", b"no"),  # proxies must not buffer
    ],
}
_EMPTY: Final = b"[]"
_STILL_HERE: Final = b": still here\n\n"


async def serve_event_stream(
    scope: Scope,
    receive: Receive,
    send: Send,
    feed: ChangeFeed,
    wanted: AbstractSet[int] | None,
    stall: float = STALL_SECONDS,
) -> None:
    """Until the client disconnects, stalls, or the feed is closed."""
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await send(_BEGIN)
        number = parse_resume_token(get_header(scope, b"last-event-id"), feed)
        chunk = b"retry: 2000\n" + _event(feed, number, wanted)
        while not gone.done():
            number = feed.number
            async with asyncio.timeout(stall):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if feed.closed:
                break
            if feed.number == number:
                await _either(feed.next_batch(), gone)
            chunk = _event(feed, number, wanted) or _STILL_HERE
        await send({"type": "http.response.body", "body": b""})
    except TimeoutError:
        log.info("stream client timed out", client=scope.get("client"))
    finally:
        gone.cancel()


def _event(feed: ChangeFeed, number: int | None, wanted: AbstractSet[int] | None) -> bytes:
    """Changes since then as an event; empty without changes."""
    news = None if number is None else feed.since(number, wanted)
    if news is None:
        news = encode_array(feed.current(wanted))
    elif news == _EMPTY:
        return b""
    return b"id: %s\nevent: figures\ndata: %s\n\n" % (resume_token(feed).encode(), news)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _either(batch: asyncio.Future[None], gone: asyncio.Future[None]) -> None:
    """Wait for the next batch or the disconnect."""

    def wake(_: asyncio.Future[None]) -> None:
        if not batch.done():
            batch.set_result(None)

    gone.add_done_callback(wake)
    try:
        await batch
    finally:
        gone.remove_done_callback(wake)


#: The maximum size of a message.
MAX_MESSAGE_BYTES: Final = 16 * 1024
_RESTART: Final = 1012
_STALLED: Final = 1008


class LiveWebSocket:
    """One client with its subscription and position in the feed."""

    def __init__(self, receive: Receive, send: Send, feed: ChangeFeed) -> None:
        self._receive = receive
        self._send = send
        self._feed = feed
        self._wanted: set[int] = set()
        self._number = feed.number

    async def serve(self, stall: float = STALL_SECONDS) -> None:
        if (await self._receive())["type"] != "websocket.connect":
            return
        await self._send({"type": "websocket.accept"})
        listening = asyncio.create_task(self._listen())
        try:
            await self._send_changes(listening, stall)
        except TimeoutError:
            await self._send({"type": "websocket.close", "code": _STALLED})
        finally:
            listening.cancel()

    async def _send_changes(self, listening: asyncio.Task[None], stall: float) -> None:
        while not listening.done():
            batch = self._feed.next_batch()
            await asyncio.wait({batch, listening}, return_when=asyncio.FIRST_COMPLETED)
            batch.cancel()
            if self._feed.closed:
                await self._send({"type": "websocket.close", "code": _RESTART})
                return
            news = self._feed.since(self._number, self._wanted)
            self._number = self._feed.number
            if news is None:
                news = encode_array(self._feed.current(self._wanted))
            if news != b"[]":
                async with asyncio.timeout(stall):
                    await self._send_figures(news)

    async def _listen(self) -> None:
        while (event := await self._receive())["type"] == "websocket.receive":
            text = event.get("text") or (event.get("bytes") or b"").decode(errors="replace")
            try:
                new = self._apply(text)
            except InvalidHiveList as error:
                await self._send(
                    {"type": "websocket.send", "text": json.dumps({"error": str(error)})}
                )
            else:
                if new:
                    await self._send_figures(encode_array(self._feed.current(new)))

    def _apply(self, text: str) -> frozenset[int]:
        """Change the subscription; returns the added hives."""
        try:
            request: Any = json.loads(text) if len(text) <= MAX_MESSAGE_BYTES else None
        except ValueError:
            request = None
        if not isinstance(request, dict) or not request.keys() <= {"subscribe", "unsubscribe"}:
            raise InvalidHiveList('must be {"subscribe": [1, 2]} or {"unsubscribe": [1]}')
        more, fewer = (
            parse_hives(request.get("subscribe", ())),
            parse_hives(request.get("unsubscribe", ())),
        )
        after = (self._wanted | more) - fewer
        if len(after) > MAX_HIVES:
            raise InvalidHiveList(f"at most {MAX_HIVES} hives at a time")
        new = frozenset(after - self._wanted)
        self._wanted = after
        return new

    async def _send_figures(self, figures: bytes) -> None:
        text = f'{{"figures":{figures.decode()},"at":"{resume_token(self._feed)}"}}'
        await self._send({"type": "websocket.send", "text": text})


async def serve_websocket(scope: Scope, receive: Receive, send: Send, feed: ChangeFeed) -> None:
    await LiveWebSocket(receive, send, feed).serve()
