"""A range of a stream over several connections at once, in order.

What a chunk costs RabbitMQ is hardly its bytes: for each it goes to a file and comes back, from one
thread to another and a few times, and sleeps in between. With several connections its threads find
something to do when they come back: a lone reader gets its chunks three times as fast, for half the
processor time; where others keep the broker busy it is a tenth or two less. So a range is cut into
strips; each is read over a connection of its own, and handed on when its turn comes.

Two more things save much where chunks are small. The system wakes us for what is worth looking at,
and not for each chunk. And there is credit for no more chunks than a strip seems to have left, so
that few are sent in vain.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from multiprocessing.connection import wait
from typing import Final

from penstock.core.errors import PenstockError
from penstock.pipeline.brokers.contract import Range
from penstock.pipeline.rabbitmq.chunks import extent
from penstock.pipeline.rabbitmq.connection import StreamConnection

#: More gain little; brokers have other clients, and there are other tasks.
LANES: Final = 4
#: To find an offset costs the broker some milliseconds, as much as a hundred chunks.
STRIP_LEAST: Final = 4096
STRIP_MOST: Final = 32_768
#: Chunks under way. Many hold a few dozen messages; how many bytes there may be, TCP says.
CREDIT: Final = 256
_FIRST_CREDIT: Final = 16  # as long as nothing is known about the chunks
#: So many bytes are handed on together, and so is what came before a pause.
BLOCK_BYTES: Final = 1 << 20
PAUSE_SECONDS: Final = 0.02
#: What a lane may hold until its turn comes; then TCP makes the broker wait.
LANE_BYTES: Final = 8 << 20
#: So many are worth being woken for.
_LOOK_BYTES: Final = 1 << 16


def strips(wanted: Range) -> list[Range]:
    """Parts of the range, one behind the other: one for each lane, or more if they are long."""
    size = len(wanted)
    if not size:
        return []
    count = max(min(LANES, -(-size // STRIP_LEAST)), -(-size // STRIP_MOST))
    edges = [wanted.start + size * index // count for index in range(count + 1)]
    return [Range(wanted.stream, *edge) for edge in pairwise(edges)]


class Lanes:
    """Reads strips side by side; closed by `close`, with the connections it has open."""

    def __init__(
        self, connect: Callable[[Range], StreamConnection], wanted: Iterable[Range]
    ) -> None:
        self._connect = connect
        self._waiting = deque(wanted)
        self._lanes: deque[_Lane] = deque()
        self._most = LANES

    def close(self) -> None:
        for lane in self._lanes:
            lane.connection.close()

    def chunks(self, silence: float) -> Iterator[tuple[Range, list[bytes]]]:
        """The chunks of one strip after the other; at its edges they hold more than the strip.

        Raises `TimeoutError` when none comes for so many seconds.
        """
        last = time.monotonic()
        while self._open():
            head = self._lanes[0]
            came = head.complete or self._receive()
            if head.held >= BLOCK_BYTES or (head.held and (head.complete or not came)):
                yield head.strip, head.take()
                came = True
            if head.complete and not head.held:
                self._lanes.popleft()
            if came:
                last = time.monotonic()
            elif time.monotonic() - last > silence:
                raise TimeoutError(f"nothing comes of {head.strip}")

    def _open(self) -> bool:
        """Have as many lanes as there may be; whether there are any."""
        while self._waiting and len(self._lanes) < self._most:
            strip = self._waiting[0]
            try:
                lane = _Lane(self._connect(strip), strip)
            except (OSError, PenstockError):
                if not self._lanes:
                    raise
                self._most = len(self._lanes)  # a broker may not let us have more
                break
            self._waiting.popleft()
            self._lanes.append(lane)
            lane.begin()
        return bool(self._lanes)

    def _receive(self) -> bool:
        """Take what has come, or comes in a moment; whether anything did."""
        reading = [lane for lane in self._lanes if lane.thirsty or lane is self._lanes[0]]
        found = [lane for lane in reading if lane.connection.ready]
        if not found:
            woken = wait([lane.connection.fileno() for lane in reading], PAUSE_SECONDS)
            found = [lane for lane in reading if lane.connection.fileno() in woken]
        # After a pause whatever there is is worth looking at.
        return sum(lane.receive() for lane in found or reading) > 0


class _Lane:
    """A strip, and the chunks of it that have come."""

    __slots__ = (
        *("_bytes", "_count", "_due", "_found", "_messages", "_next"),
        *("complete", "connection", "held", "strip"),
    )

    def __init__(self, connection: StreamConnection, strip: Range) -> None:
        self.connection = connection
        self.strip = strip
        self.held = 0  #: bytes that are to be taken
        self.complete = False  #: the last of the strip, or one behind it, has come
        self._found: deque[bytes] = deque()
        self._next = strip.start
        self._due = min(_FIRST_CREDIT, len(strip))  # chunks there is credit for
        # What has come so far:
        self._count = self._messages = self._bytes = 0

    @property
    def thirsty(self) -> bool:
        """There is more to come, and room for it."""
        return not self.complete and self.held < LANE_BYTES

    def begin(self) -> None:
        self.connection.subscribe(self.strip.stream, self.strip.start, self._due)

    def receive(self) -> bool:
        """Take what has come, and see to it that more does; whether anything did, if but a part."""
        before = self.connection.received
        chunks = self.connection.chunks()
        for content in chunks:
            offsets = extent(content)
            self._count += 1
            self._messages += len(offsets)
            self._bytes += len(content)
            self._next = offsets.stop
            if offsets.start < self.strip.stop:
                self._found.append(content)
                self.held += len(content)
            if offsets.stop >= self.strip.stop:
                self.complete = True
                self.connection.close()
                return True
        self._due -= len(chunks)
        if chunks:
            self._ask()
        return self.connection.received > before

    def take(self) -> list[bytes]:
        """Some of the chunks that have come."""
        taken, size = [], 0
        while self._found and size < BLOCK_BYTES:
            taken.append(self._found.popleft())
            size += len(taken[-1])
        self.held -= size
        return taken

    def _ask(self) -> None:
        """Credit for what seems to be left, in time; and not to be woken before half of it came."""
        left = (self.strip.stop - self._next) * self._count // max(self._messages, 1) + 1
        useful = min(left, CREDIT)
        if self._due <= useful // 2:
            self.connection.give(useful - self._due)
            self._due = useful
        awaited = min(self._due, useful) * (self._bytes // self._count) // 2
        self.connection.wait_for(min(awaited, _LOOK_BYTES))
