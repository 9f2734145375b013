"""Which deliveries are paged out, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.broker.contract import Channel, Delivery
from penstock.broker.inflight_pager import DELIVERIES_PER_CHECK, InflightPager
from tests.doubles import Recorder, Stand, message

INTERVAL = 1000


class Window(Channel):
    """A consumer that sends nothing, and notes what is paged out."""

    __slots__ = ("last_sent", "paged", "unacked")

    def __init__(self, stand: Stand) -> None:
        super().__init__(None, Recorder())  # type: ignore[arg-type]
        self.pages = self
        self.last_sent = 0
        self.unacked: dict[int, Delivery] = {}
        self.paged: list[int] = []

    def deliver(self, count: int = 1) -> None:
        for _ in range(count):
            self.last_sent += 1
            self.unacked[self.last_sent] = Delivery(message(), self.last_sent)

    def unacknowledged(self, after: int, upto: int) -> list[tuple[int, Channel, Delivery]]:
        return [(n, self, one) for n, one in self.unacked.items() if after < n <= upto]

    def page_out(self, delivery: Delivery) -> None:
        self.paged.append(delivery.position)

    def load(self, delivery: Delivery) -> bool:
        raise AssertionError("nothing is loaded by the pager")


class Sweeps:
    """A pager whose deferred work runs when the test says so."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        self.pager = InflightPager(stand.kernel.write_batch, stand.kernel.metrics, INTERVAL)
        stand.kernel.write_batch.after_flush = None
        self._pieces: list[Callable[[], None]] = []
        write_batch: Any = stand.kernel.write_batch
        write_batch.defer = self._pieces.append

    def send(self, size: int = INTERVAL) -> int:
        """Output of that size; returns how many pieces of work it caused."""
        self._stand.kernel.metrics.bytes_out += size
        self.pager.check()
        count = 0
        while self._pieces:
            count += 1
            self._pieces.pop()()
            self._stand.kernel.write_batch.flush()
        return count


async def test_a_delivery_is_paged_out_at_the_second_sweep_after_it(stand: Stand) -> None:
    sweeps, window = Sweeps(stand), Window(stand)
    sweeps.pager.add(window)
    window.deliver(2)
    assert sweeps.send() == 1
    window.deliver()
    assert window.paged == []
    sweeps.send()
    assert window.paged == [1, 2]
    sweeps.send()
    assert window.paged == [1, 2, 3]


async def test_what_is_acknowledged_meanwhile_is_not_touched(stand: Stand) -> None:
    sweeps, window = Sweeps(stand), Window(stand)
    sweeps.pager.add(window)
    window.deliver(2)
    sweeps.send()
    del window.unacked[1]
    sweeps.send()
    assert window.paged == [2]


async def test_there_is_no_sweep_before_the_interval_is_sent(stand: Stand) -> None:
    sweeps = Sweeps(stand)
    sweeps.pager.add(Window(stand))
    assert sweeps.send(INTERVAL - 1) == 0
    assert sweeps.send(1) == 1
    assert sweeps.send(INTERVAL - 1) == 0


async def test_a_window_that_has_ended_is_left_out(stand: Stand) -> None:
    sweeps, ended, other = Sweeps(stand), Window(stand), Window(stand)
    sweeps.pager.add(ended)
    sweeps.pager.add(other)
    ended.deliver()
    other.deliver()
    sweeps.send()
    sweeps.pager.discard(ended)
    sweeps.send()
    assert (ended.paged, other.paged) == ([], [1])


async def test_a_long_sweep_lets_others_be_served(stand: Stand) -> None:
    sweeps, window = Sweeps(stand), Window(stand)
    sweeps.pager.add(window)
    count = 2 * DELIVERIES_PER_CHECK + 10
    window.deliver(count)
    sweeps.send()
    page_out = window.page_out

    class Slow:
        """Every page takes a millisecond."""

        load = window.load

        def page_out(self, delivery: Delivery) -> None:
            stand.clock.advance(0.001)
            page_out(delivery)

    window.pages = Slow()
    assert sweeps.send() == 3
    assert window.paged == list(range(1, count + 1)), "each once, in order"
