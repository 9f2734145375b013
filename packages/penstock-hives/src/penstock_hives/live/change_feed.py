"""Changes of occupancy in numbered batches that all streams of a worker share.

The first change after a pause is published at once; changes within `pace` seconds are coalesced per
hive into the next batch. A limited number of batches is retained. A stream remembers a number and
reads what came after it; one that is too far behind reads the current state instead. So there is no
queue per stream, and a slow reader skips values but always gets the latest.

    feed.publish(occupancy)
    changes = feed.since(number, wanted)       # or None: start with `current(wanted)`
    await feed.next_batch()
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

#: Between two batches.
BATCH_SECONDS: Final = 0.25
#: Retained batches: some minutes of a busy day.
MAX_BATCHES: Final = 1000
#: Proxies close idle connections, so there is a batch at least this often, if an empty one.
HEARTBEAT_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class EncodedOccupancy:
    """Occupancy of a hive, encoded once for all streams."""

    hive: int
    version: int
    body: bytes  #: JSON


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    number: int
    figures: tuple[EncodedOccupancy, ...]
    text: bytes  #: all of them, as a JSON array


class ChangeFeed:
    """For one event loop."""

    def __init__(
        self,
        pace: float = BATCH_SECONDS,
        max_batches: int = MAX_BATCHES,
        beat: float = HEARTBEAT_SECONDS,
    ) -> None:
        #: Batch numbers are local to a worker; the name tells whose they are.
        self.name = secrets.token_hex(4)
        self.number = 0
        self.streams = 0  #: open now
        self._pace = pace
        self._beat = beat
        self._batches: deque[ChangeBatch] = deque(maxlen=max_batches)
        self._latest: dict[int, EncodedOccupancy] = {}
        self._pending: dict[int, EncodedOccupancy] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.TimerHandle | None = None
        self._closed = False

    def open(self) -> None:
        self._beating = asyncio.get_running_loop().call_later(self._beat, self._keep_alive)

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        for timer in (self._timer, self._beating):
            if timer is not None:
                timer.cancel()
        self._wake()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def latest(self) -> dict[int, EncodedOccupancy]:
        return self._latest

    def publish(self, figure: EncodedOccupancy) -> bool:
        """False for a version that is not newer."""
        known = self._latest.get(figure.hive)
        if known is not None and known.version >= figure.version:
            return False
        self._latest[figure.hive] = figure
        self._pending[figure.hive] = figure
        if self._timer is None and not self._closed:
            self._publish_pending()
        return True

    def remove(self, hives: Iterable[int]) -> None:
        for hive in hives:
            self._latest.pop(hive, None)
            self._pending.pop(hive, None)

    def current(self, wanted: AbstractSet[int] | None) -> tuple[EncodedOccupancy, ...]:
        """The latest values of these hives, or of all."""
        if wanted is None:
            return tuple(self._latest.values())
        return tuple(self._latest[hive] for hive in wanted if hive in self._latest)

    def since(self, number: int, wanted: AbstractSet[int] | None) -> bytes | None:
        """Changes after a batch, as a JSON array; None if the batch is not retained."""
        missed = self.number - number
        if missed < 0 or missed > len(self._batches):
            return None
        if missed == 1 and wanted is None:
            return self._batches[-1].text  # the common case: the same bytes for all
        latest: dict[int, EncodedOccupancy] = {}
        for index in range(len(self._batches) - missed, len(self._batches)):
            for figure in self._batches[index].figures:
                if wanted is None or figure.hive in wanted:
                    latest[figure.hive] = figure
        return encode_array(latest.values())

    def next_batch(self) -> asyncio.Future[None]:
        """Done with the next batch or when the feed is closed; cancel it if it is not needed."""
        future = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_result(None)
        else:
            self._waiting.append(future)
        return future

    def _publish_pending(self) -> None:
        self._timer = None
        if self._pending:
            self._timer = asyncio.get_running_loop().call_later(self._pace, self._publish_pending)
            self._add_batch()

    def _add_batch(self) -> None:
        figures, self._pending = tuple(self._pending.values()), {}
        self.number += 1
        self._batches.append(ChangeBatch(self.number, figures, encode_array(figures)))
        self._wake()

    def _keep_alive(self) -> None:
        self._add_batch()
        self._beating = asyncio.get_running_loop().call_later(self._beat, self._keep_alive)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


def encode_array(figures: Iterable[EncodedOccupancy]) -> bytes:
    return b"[" + b",".join(figure.body for figure in figures) + b"]"
