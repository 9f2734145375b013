"""Listens to the exchange `occupancy` for as long as it is open, whatever becomes of the broker.

Each figure is handed on as it comes. With several brokers, one that cannot be reached gives way to
the next, in turn; one that goes away is mended by the client, and told of: figures of the meantime
are lost here and are had from elsewhere (`public/snapshot.py`), for what is told is always how a
hive stands, never a difference.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import cycle
from typing import Any, Final

from penstock.client import connect
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock_hives.occupancy.publisher import EXCHANGE

log = get_logger(__name__)

#: Between two tries: half a second at first, twice as long each time.
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 10.0
#: For a connection and a subscription; a broker that takes longer is as good as away.
CONNECT_SECONDS: Final = 15.0

Document = Mapping[str, Any]


class OccupancySubscriber:
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


# How long figures take to get here: from when the broker took a report in to when it is told.
#
# Latency is of one message and two points, so each is noted as it comes; how many there are in a
# second says nothing of it. Kept are the last thousand. A figure that only time has brought about,
# of a hive that fell silent, was no message and is left out.

MAX_SAMPLES: Final = 1000


class LatencyTracker:
    """In seconds."""

    __slots__ = ("_clock", "_kept")

    def __init__(self, clock: Callable[[], datetime], kept: int = MAX_SAMPLES) -> None:
        self._clock = clock
        self._kept: deque[float] = deque(maxlen=kept)

    def note(self, document: Mapping[str, Any]) -> None:
        """Of a figure that has just come."""
        if document.get("quality") == "stale":
            return
        try:
            taken = datetime.fromisoformat(document["as_of"])
            self._kept.append((self._clock() - taken).total_seconds())
        except (KeyError, TypeError, ValueError):  # it does not say when
            return

    def summary(self) -> dict[str, float | None]:
        """What half of them, and nineteen in twenty, did not exceed; none while there are none."""
        ordered = sorted(self._kept)
        return {name: _quantile(ordered, share) for name, share in (("p50", 0.5), ("p95", 0.95))}


def _quantile(ordered: list[float], share: float) -> float | None:
    if not ordered:
        return None
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)
