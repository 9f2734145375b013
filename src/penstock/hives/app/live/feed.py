"""Listens to the exchange `occupancy` for as long as it is open, whatever becomes of the broker.

Each figure is handed on as it comes. With several brokers, one that cannot be reached gives way to
the next, in turn; one that goes away is mended by the client, and told of: figures of the meantime
are lost here and are had from elsewhere (`public/refresher.py`), for what is told is always how a
hive stands, never a difference.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any, Final

from penstock.client import connect
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.hives.publications import EXCHANGE

log = get_logger(__name__)

#: Between two tries: half a second at first, twice as long each time.
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 10.0
#: For a connection and a subscription; a broker that takes longer is as good as away.
CONNECT_SECONDS: Final = 15.0

Document = Mapping[str, Any]


class Feed:
    """One subscription. Owned by one task: cancel `run` to end it."""

    def __init__(
        self,
        urls: Sequence[str],
        heard: Callable[[Document], None],
        longest_pause: float = LONGEST_PAUSE,
    ) -> None:
        self._urls = urls
        self._heard = heard
        self._longest = longest_pause
        self.listening = asyncio.Event()  #: set while figures would be heard
        self.figures = 0
        self.refused = 0  #: messages that are no figures

    async def run(self) -> None:
        pause = FIRST_PAUSE
        for url in cycle(self._urls):
            try:
                await self._listen(url)
            except (PenstockError, OSError, TimeoutError) as error:
                if self.listening.is_set():
                    pause = FIRST_PAUSE
                log.warning("no live figures", reason=str(error) or "no answer", again_in=pause)
            finally:
                self.listening.clear()
            # Not all workers at once.
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(2 * pause, self._longest)

    async def _listen(self, url: str) -> None:
        async with contextlib.AsyncExitStack() as open_now:
            async with asyncio.timeout(CONNECT_SECONDS):
                fabric = await open_now.enter_async_context(connect(url))
                inflow = fabric.subscribe(f"{EXCHANGE}.#", exchange=EXCHANGE)
                figures = await open_now.enter_async_context(inflow)
            self.listening.set()
            async for message in figures:
                self._take(message.body)

    def _take(self, body: bytes) -> None:
        try:
            document = json.loads(body)
            int(document["hive"]), int(document["version"])
        except (ValueError, KeyError, TypeError):
            self.refused += 1
            log.warning("no figure", body=body[:200])
            return
        self.figures += 1
        self._heard(document)
