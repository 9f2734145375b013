"""Subscribes to the exchange `occupancy`, with reconnects and failover between brokers.

Messages published during an outage are lost here. Each message is a state and not a difference, so
`public/snapshot.py` reads the missing ones from the cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import cycle
from typing import Any, Final

from penstock.client import connect
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.core.retry import RetryPolicy
from penstock_hives.occupancy.publisher import EXCHANGE

log = get_logger(__name__)

RETRY: Final = RetryPolicy(first=0.5, longest=10.0)
#: For a connection and a subscription.
CONNECT_SECONDS: Final = 15.0

Document = Mapping[str, Any]


class OccupancySubscriber:
    """Cancel `run` to end the subscription."""

    def __init__(
        self,
        urls: Sequence[str],
        on_occupancy: Callable[[Document], None],
        retry: RetryPolicy = RETRY,
    ) -> None:
        self._urls = urls
        self._on_occupancy = on_occupancy
        self._retry = retry
        self.subscribed = asyncio.Event()  #: set while the subscription is active
        self.figures = 0
        self.refused = 0  #: invalid messages

    async def run(self) -> None:
        failures = 0
        for url in cycle(self._urls):
            try:
                await self._receive(url)
            except (PenstockError, OSError, TimeoutError) as error:
                if self.subscribed.is_set():
                    failures = 0
                log.warning("occupancy subscription lost", reason=str(error) or "timeout")
            finally:
                self.subscribed.clear()
            failures += 1
            await asyncio.sleep(self._retry.delay(failures))

    async def _receive(self, url: str) -> None:
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(CONNECT_SECONDS):
                fabric = await stack.enter_async_context(connect(url))
                subscription = fabric.subscribe(f"{EXCHANGE}.#", exchange=EXCHANGE)
                messages = await stack.enter_async_context(subscription)
            self.subscribed.set()
            async for message in messages:
                self._on_message(message.body)

    def _on_message(self, body: bytes) -> None:
        try:
            document = json.loads(body)
            int(document["hive"]), int(document["version"])
        except (ValueError, KeyError, TypeError):
            self.refused += 1
            log.warning("occupancy message invalid", body=body[:200])
            return
        self.figures += 1
        self._on_occupancy(document)


MAX_SAMPLES: Final = 1000


class LatencyTracker:
    """Seconds from a sensor report's receipt by the broker to here, of the last messages.

    Messages about hives that became stale are left out: no report caused them.
    """

    __slots__ = ("_clock", "_samples")

    def __init__(self, clock: Callable[[], datetime], max_samples: int = MAX_SAMPLES) -> None:
        self._clock = clock
        self._samples: deque[float] = deque(maxlen=max_samples)

    def record(self, document: Mapping[str, Any]) -> None:
        if document.get("quality") == "stale":
            return
        try:
            received = datetime.fromisoformat(document["as_of"])
            self._samples.append((self._clock() - received).total_seconds())
        except (KeyError, TypeError, ValueError):
            return

    def summary(self) -> dict[str, float | None]:
        """Median and 95th percentile; None without samples."""
        ordered = sorted(self._samples)
        return {name: _quantile(ordered, share) for name, share in (("p50", 0.5), ("p95", 0.95))}


def _quantile(ordered: list[float], share: float) -> float | None:
    if not ordered:
        return None
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)
