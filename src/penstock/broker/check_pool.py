"""Password checks in threads: few at a time, the addresses they come from taking turns.

A check takes tens of milliseconds and 19 MiB on purpose, so whoever sends wrong passwords could
keep others out. Three rules prevent that:

* Each address has a queue of its own, and the queues take turns. An IPv6 address counts as its
  network of 64 bits, which is what one subscriber has.
* Within an address the newest check goes first: a burst of wrong passwords delays those who sent
  it, and not whoever comes next. A queue that is full gives up its oldest.
* Each address has an allowance for checks that fail. Without one left, it waits.

Those who wait for the same check share it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv6Address, ip_address
from typing import Final

from penstock.core.errors import AuthenticationFailed

#: Checks at the same time: each holds memory, and a core while it lasts.
AT_ONCE: Final = 2
#: Checks of one address that may wait.
MOST_WAITING: Final = 256
#: Failed checks an address may have at once, and how many it gets back each second.
BURST: Final = 50.0
PER_SECOND: Final = 10.0
#: Addresses that are remembered before those that are at rest are forgotten.
MOST_ADDRESSES: Final = 1024


class _Check:
    __slots__ = ("future", "verify", "wanted")

    def __init__(self, future: asyncio.Future[bool], verify: Callable[[], bool]) -> None:
        self.future = future
        self.verify = verify
        self.wanted = 0  #: how many wait for it


class _Queue:
    """The checks of one address."""

    __slots__ = ("_allowance", "_since", "running", "waiting")

    def __init__(self, now: float) -> None:
        self.waiting: dict[bytes, _Check] = {}  #: by what is checked, the newest last
        self.running: dict[bytes, _Check] = {}
        self._allowance = BURST
        self._since = now

    def allowance(self, now: float) -> float:
        self._allowance = min(BURST, self._allowance + (now - self._since) * PER_SECOND)
        self._since = now
        return self._allowance

    def spend(self, checks: int) -> None:
        self._allowance -= checks

    def is_at_rest(self, now: float) -> bool:
        return not (self.waiting or self.running) and self.allowance(now) >= BURST


class CheckPool:
    """Runs the checks of one broker."""

    __slots__ = ("_clock", "_queues", "_running", "_threads", "_timer")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._queues: dict[str, _Queue] = {}  # whose turn is next comes first
        self._running = 0
        self._threads: ThreadPoolExecutor | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, address: str, what: bytes, verify: Callable[[], bool]) -> bool:
        """What `verify` returns; `what` tells one check of an address from another."""
        queue = self._queue(_network(address))
        check = queue.running.get(what) or queue.waiting.pop(what, None)
        if check is None:
            check = _Check(asyncio.get_running_loop().create_future(), verify)
        if what not in queue.running:
            queue.waiting[what] = check
            if len(queue.waiting) > MOST_WAITING:
                oldest = queue.waiting.pop(next(iter(queue.waiting)))
                oldest.future.set_exception(
                    AuthenticationFailed(f"too many logins wait that came from {address}")
                )
        check.wanted += 1
        self._go_on()
        try:
            return await asyncio.shield(check.future)
        finally:
            check.wanted -= 1
            if not check.wanted and queue.waiting.get(what) is check:
                del queue.waiting[what]

    def _queue(self, network: str) -> _Queue:
        queue = self._queues.get(network)
        if queue is None:
            now = self._clock()
            if len(self._queues) >= MOST_ADDRESSES:
                for known in [one for one, kept in self._queues.items() if kept.is_at_rest(now)]:
                    del self._queues[known]
            queue = self._queues[network] = _Queue(now)
        return queue

    def _go_on(self) -> None:
        """Begin as many checks as may run."""
        now = self._clock()
        while self._running < AT_ONCE:
            network = self._next(now)
            if network is None:
                self._wait(now)
                return
            queue = self._queues[network] = self._queues.pop(network)  # the others first, next time
            self._begin(queue)

    def _next(self, now: float) -> str | None:
        for network, queue in self._queues.items():
            if queue.waiting and queue.allowance(now) >= 1:
                return network
        return None

    def _begin(self, queue: _Queue) -> None:
        what, check = queue.waiting.popitem()
        queue.running[what] = check
        queue.spend(1)
        self._running += 1
        if self._threads is None:
            self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="penstock-password")
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, check.verify)
        running.add_done_callback(lambda done: self._end(queue, what, check, done))

    def _end(self, queue: _Queue, what: bytes, check: _Check, done: asyncio.Future[bool]) -> None:
        self._running -= 1
        del queue.running[what]
        error = done.exception()
        if error is None and done.result():
            queue.spend(-1)  # only failures count
        if not check.future.done():
            if error is None:
                check.future.set_result(done.result())
            else:
                check.future.set_exception(error)
        self._go_on()

    def _wait(self, now: float) -> None:
        """Somebody may wait for an allowance only: look again when there is one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        short = [1 - queue.allowance(now) for queue in self._queues.values() if queue.waiting]
        if short:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(short) / PER_SECOND, self._go_on)


def _network(address: str) -> str:
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return f"{int(found) >> 64:x}::/64"
