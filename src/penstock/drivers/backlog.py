"""Messages that wait, in order: those that came back first, then the fresh, then those on disk.

Memory holds the head. When it holds enough, further messages go to the store only (*paged*), and
are read back a chunk at a time as the head is used up; nothing is kept in memory for them. A queue
with priorities has one backlog for each, and does not page.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from penstock.broker.contract import Delivery
from penstock.drivers.store import Record, Store


class Backlog:
    __slots__ = ("_admit", "_next_page", "fresh", "paged", "returned")

    def __init__(self, admit: Callable[[Record], Delivery]) -> None:
        self._admit = admit  #: makes a delivery of a record that is read back
        self.returned: list[tuple[int, Delivery]] = []
        self.fresh: deque[Delivery] = deque()
        self.paged = 0  #: how many wait on disk only
        self._next_page = 0

    def __len__(self) -> int:
        return len(self.returned) + len(self.fresh) + self.paged

    def give_back(self, delivery: Delivery) -> None:
        """To its original place: what came back is older than all that never left."""
        heappush(self.returned, (delivery.position, delivery))

    def page(self, offset: int) -> None:
        """A message that is in the store and not in memory."""
        if not self.paged:
            self._next_page = offset
        self.paged += 1

    def peek(self, store: Store | None) -> Delivery | None:
        if self.returned:
            return self.returned[0][1]
        if not self.fresh and self.paged:
            self._read(store)
        return self.fresh[0] if self.fresh else None

    def pop(self) -> Delivery:
        """What `peek` showed."""
        if self.returned:
            return heappop(self.returned)[1]
        return self.fresh.popleft()

    def _read(self, store: Store | None) -> None:
        assert store is not None, "only a queue with a store pages"
        while self.paged and not self.fresh:
            if self._next_page >= store.log.next_offset:
                self.paged = 0  # a damaged chunk took messages with it; it has been reported
                return
            try:
                records, self._next_page = store.batch(self._next_page)
            except OSError:
                return  # the disk takes nothing: what was to be paged is neither there nor here
            self.fresh.extend(map(self._admit, records))
            self.paged = max(0, self.paged - len(records))

    def clear(self) -> None:
        self.returned.clear()
        self.fresh.clear()
        self.paged = 0
