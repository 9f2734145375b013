"""Pages out the messages of deliveries that stay unacknowledged.

A consumer may have any number of unacknowledged deliveries, for as long as it likes. Their messages
are needed again only if they are requeued, dead-lettered or resumed, so they need not stay in
memory: their queue has them on disk (`MessagePages`).

Deliveries are not counted one by one. After each `interval` bytes of output a sweep visits the
windows of all consumers and pages out what was sent before the previous sweep. So messages that are
acknowledged soon are never touched, and those of unacknowledged deliveries take at most the bytes
of two intervals, however many consumers there are.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from penstock.broker.contract import Channel, Delivery
from penstock.broker.write_batch import WriteBatch
from penstock.core.metrics import Metrics

#: Deliveries between two checks of the clock.
DELIVERIES_PER_CHECK: Final = 256


class DeliveryWindow(Protocol):
    """Numbers its deliveries in the order in which they are sent."""

    @property
    def last_sent(self) -> int:
        """The number of the last delivery."""

    def unacknowledged(self, after: int, upto: int) -> list[tuple[int, Channel, Delivery]]:
        """The unacknowledged deliveries with these numbers, in order."""


class InflightPager:
    def __init__(self, write_batch: WriteBatch, metrics: Metrics, interval: int) -> None:
        self._write_batch = write_batch
        self._metrics = metrics
        self._interval = interval
        self._due = interval
        #: All up to the first number is paged out; the second was the last at the previous sweep.
        self._windows: dict[DeliveryWindow, tuple[int, int]] = {}
        self._sweep: deque[DeliveryWindow] = deque()  #: what is left of it

    def add(self, window: DeliveryWindow) -> None:
        self._windows.setdefault(window, (0, 0))

    def discard(self, window: DeliveryWindow) -> None:
        self._windows.pop(window, None)

    def check(self) -> None:
        """After output: sweep, if it is time."""
        if self._metrics.bytes_out >= self._due and not self._sweep:
            self._due = self._metrics.bytes_out + self._interval
            self._sweep.extend(self._windows)
            if self._sweep:
                self._write_batch.defer(self._continue)

    def _continue(self) -> None:
        sweep = self._sweep
        while sweep and not self._write_batch.is_over():
            if self._page_out(sweep[0]):
                sweep.popleft()
        if sweep:
            self._write_batch.defer(self._continue)

    def _page_out(self, window: DeliveryWindow) -> bool:
        """Returns whether the window is done."""
        marks = self._windows.get(window)
        if marks is None:
            return True
        paged, swept = marks
        found = window.unacknowledged(paged, swept) if swept > paged else []
        for count, (number, channel, delivery) in enumerate(found, 1):
            if channel.pages is not None:
                channel.pages.page_out(delivery)
            if not count % DELIVERIES_PER_CHECK and self._write_batch.is_over():
                self._windows[window] = (number, swept)
                return False
        self._windows[window] = (swept, window.last_sent)
        return True
