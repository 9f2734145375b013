"""`/v1/live` in its three forms, by what the client asks for: a socket, a stream or an answer."""

from __future__ import annotations

from typing import Final

from penstock.hives.app.engine.asgi import Application, Receive, Scope, Send, header, problem
from penstock.hives.app.live import events, polling, sockets
from penstock.hives.app.live.bulletin import Bulletin
from penstock.hives.app.live.following import Unreadable, wanted

PATH: Final = "/v1/live"
#: Streams and sockets one worker holds: about 50 KB each.
MOST_STREAMS: Final = 5000
_RETRY: Final = (b"retry-after", b"5")


def live(bulletin: Bulletin, most: int = MOST_STREAMS) -> Application:
    """Streams beyond the limit are refused with 503; polling still answers."""
    open_now = 0

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal open_now
        as_socket = scope["type"] == "websocket"
        if not as_socket and scope["method"] not in ("GET", "HEAD"):
            await problem(send, 405, "figures are read only", [(b"allow", b"GET, HEAD")])
            return
        try:
            hives = wanted(scope["query_string"])
        except Unreadable as error:
            await (_refused(send) if as_socket else problem(send, 422, str(error)))
            return
        if not as_socket and b"text/event-stream" not in (header(scope, b"accept") or b""):
            await polling.poll(scope, send, bulletin, hives)
            return
        if open_now >= most:
            busy = problem(send, 503, "too many streams are open here; poll instead", [_RETRY])
            await (_refused(send) if as_socket else busy)
            return
        open_now += 1
        try:
            if as_socket:
                await sockets.serve(scope, receive, send, bulletin)
            else:
                await events.stream(scope, receive, send, bulletin, hives)
        finally:
            open_now -= 1

    return application


async def _refused(send: Send) -> None:
    """Before it is accepted, a socket that is closed is one that is refused."""
    await send({"type": "websocket.close", "code": 1013})
