"""WebSockets: for apps that follow some hives now and others a moment later.

    -> {"subscribe": [3, 7]}        <- {"figures": [{"hive_id": 3, …}, {"hive_id": 7, …}], "at": …}
    -> {"unsubscribe": [3]}         <- {"figures": [{"hive_id": 7, …}], "at": …}   as they change

What cannot be read is answered with `{"error": …}`, and nothing changes. A client that does not
take what is sent misses figures, as a slow stream does; one that stalls is closed. When the worker
drains it is closed with 1012, *service restart*: connect again.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from penstock.hives.app.engine.asgi import Receive, Scope, Send
from penstock.hives.app.live.bulletin import Bulletin, array
from penstock.hives.app.live.events import STALL_SECONDS
from penstock.hives.app.live.following import MOST_HIVES, Unreadable, hives, place

#: What a client may say at once.
LONGEST_WORD: Final = 16 * 1024
_RESTART: Final = 1012
_STALLED: Final = 1008


class Socket:
    """One client: what it follows, and how far it was told."""

    def __init__(self, receive: Receive, send: Send, bulletin: Bulletin) -> None:
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
                news = array(self._bulletin.whole(self._wanted))
            if news != b"[]":
                async with asyncio.timeout(stall):
                    await self._say(news)

    async def _listen(self) -> None:
        while (event := await self._receive())["type"] == "websocket.receive":
            word = event.get("text") or (event.get("bytes") or b"").decode(errors="replace")
            try:
                new = self._heed(word)
            except Unreadable as error:
                await self._send(
                    {"type": "websocket.send", "text": json.dumps({"error": str(error)})}
                )
            else:
                if new:
                    await self._say(array(self._bulletin.whole(new)))

    def _heed(self, word: str) -> frozenset[int]:
        """Do as told; which hives are followed that were not."""
        try:
            told: Any = json.loads(word) if len(word) <= LONGEST_WORD else None
        except ValueError:
            told = None
        if not isinstance(told, dict) or not told.keys() <= {"subscribe", "unsubscribe"}:
            raise Unreadable('should be {"subscribe": [1, 2]} or {"unsubscribe": [1]}')
        more, fewer = hives(told.get("subscribe", ())), hives(told.get("unsubscribe", ()))
        after = (self._wanted | more) - fewer
        if len(after) > MOST_HIVES:
            raise Unreadable(f"at most {MOST_HIVES} hives at a time")
        new = frozenset(after - self._wanted)
        self._wanted = after
        return new

    async def _say(self, figures: bytes) -> None:
        text = f'{{"figures":{figures.decode()},"at":"{place(self._bulletin)}"}}'
        await self._send({"type": "websocket.send", "text": text})


async def serve(scope: Scope, receive: Receive, send: Send, bulletin: Bulletin) -> None:
    await Socket(receive, send, bulletin).serve()
