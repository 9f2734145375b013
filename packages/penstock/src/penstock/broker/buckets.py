"""Buckets, the memory for large messages, and the budget of all message memory.

Small messages are `bytes`; queues only report their size here. Large messages pass through buckets,
pooled buffers with a reference count, into a spool file, so any message needs only a few buckets.

Nothing here refuses memory. A caller that finds the budget used up (`spent`) stops reading from its
socket and is called back later: back-pressure is the TCP window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: The default size: large enough for one write in a thread, small enough for many connections. Also
#: what a large message counts in memory while its body is in a spool.
BUCKET_BYTES: Final = 256 * 1024

#: Free buckets kept for reuse, in bytes per size.
MAX_POOLED_BYTES: Final = 8 * 1024 * 1024

#: What a message in memory takes beside its body: objects, header, key.
MESSAGE_OVERHEAD_BYTES: Final = 400


class Bucket:
    """A pooled buffer. Each holder retains it; the last release returns it to the pool."""

    __slots__ = ("account", "filled", "memory", "references", "view")

    def __init__(self, memory: bytearray, account: MemoryAccount) -> None:
        self.memory = memory
        self.view = memoryview(memory)
        self.account = account
        self.filled = 0
        self.references = 1

    def fill(self, data: memoryview) -> int:
        """Copy as much as fits; returns the number of bytes."""
        taken = min(len(data), len(self.memory) - self.filled)
        self.view[self.filled : self.filled + taken] = data[:taken]
        self.filled += taken
        return taken

    @property
    def full(self) -> bool:
        return self.filled == len(self.memory)

    @property
    def content(self) -> memoryview:
        return self.view[: self.filled]

    def retain(self) -> None:
        self.references += 1

    def release(self) -> None:
        self.references -= 1
        if not self.references:
            self.account.give_back(self)


class MemoryAccount:
    """The buckets of one connection, and their limit."""

    __slots__ = ("on_relief", "pool", "used", "window")

    def __init__(self, pool: BucketPool, window: int, on_relief: Callable[[], None]) -> None:
        self.pool = pool
        self.window = window
        self.used = 0
        self.on_relief = on_relief

    @property
    def spent(self) -> bool:
        return self.used >= self.window

    def take(self, size: int = BUCKET_BYTES) -> Bucket:
        memory = self.pool.take(size)
        self.used += len(memory)
        return Bucket(memory, self)

    def give_back(self, bucket: Bucket) -> None:
        self.used -= len(bucket.memory)
        self.pool.put(bucket.memory)
        self.on_relief()


class BucketPool:
    """Free buckets by size, and the memory that messages of one broker use."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        #: Bytes in use: buckets, and small messages in queues.
        self.used = 0
        self._free: dict[int, list[bytearray]] = {}
        self._waiting: list[Callable[[], None]] = []

    @property
    def spent(self) -> bool:
        return self.used >= self.budget

    def take(self, size: int) -> bytearray:
        size = 1 << max(size - 1, 1).bit_length()
        self.used += size
        free = self._free.get(size)
        return free.pop() if free else bytearray(size)

    def put(self, memory: bytearray) -> None:
        size = len(memory)
        free = self._free.setdefault(size, [])
        if (len(free) + 1) * size <= MAX_POOLED_BYTES:
            free.append(memory)
        self.discharge(size)

    def charge(self, size: int) -> None:
        self.used += size

    def discharge(self, size: int) -> None:
        self.used -= size
        if self._waiting and self.used < self.budget:
            waiting, self._waiting = self._waiting, []
            for resume in waiting:
                resume()

    def when_relieved(self, resume: Callable[[], None]) -> None:
        """Call back once when the budget is no longer used up."""
        self._waiting.append(resume)
