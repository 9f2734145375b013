"""Buckets: the memory messages are carried in, and the budget that bounds it.

Small messages are `bytes`; what queues hold of them is only counted here. Large messages pass in
*buckets*, pooled buffers of power-of-two sizes with a reference count, and come to rest in a
*spool*, a file, so that a message of any size needs a few buckets and no more.

Nothing here refuses memory: a caller that finds the budget spent (`spent`) stops reading from the
socket that fills it and is called back when there is room. Back-pressure is the TCP window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Buckets are this large unless asked otherwise: big enough to make one write worth a thread's
#: while, small enough that a dozen connections fit a small machine.
BUCKET_BYTES: Final = 256 * 1024

#: How many bytes of free buckets of each size the pool keeps for the next taker.
MAX_POOLED_BYTES: Final = 8 * 1024 * 1024


class Bucket:
    """A pooled buffer. Whoever takes it further retains it; the last to release it returns it."""

    __slots__ = ("account", "filled", "memory", "references", "view")

    def __init__(self, memory: bytearray, account: MemoryAccount) -> None:
        self.memory = memory
        self.view = memoryview(memory)
        self.account = account
        self.filled = 0
        self.references = 1

    def fill(self, data: memoryview) -> int:
        """Copy in as much as there is room for; returns how much that was."""
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
    """What one connection holds of the pool, and the window it must stay in."""

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
    """One broker's memory for messages: free buckets by size, and the sum of what is in use."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        #: Bytes in use: buckets that are out, and what queues hold of small messages.
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
        """Call back once when there is room again."""
        self._waiting.append(resume)
