"""Ready messages of one priority, in memory and paged to the log, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from heapq import heapify, heappop, heappush
from operator import itemgetter

from penstock.broker.contract import (
    Delivery,
    PagedMessage,
)
from penstock.destinations.message_log import LoggedMessage, MessageLog


def message_id(delivery: Delivery) -> str:
    """The offset of a logged message; others are identified by their position."""
    return str(delivery.offset) if delivery.offset >= 0 else f"m{delivery.position}"


class Backlog:
    """Ready messages in order: requeued ones, then new ones in memory, then paged ones.

    Paged messages are only in the log, and are read back one chunk at a time. A queue with
    priorities has one backlog per priority and does not page.
    """

    __slots__ = ("_admit", "_load", "_next_page", "fresh", "paged", "requeued", "taken")

    def __init__(
        self,
        admit: Callable[[LoggedMessage], Delivery],
        load: Callable[[Delivery], bool] = lambda _: True,
    ) -> None:
        self._admit = admit  #: makes a delivery of a record
        self._load = load  #: reads the message of a requeued delivery; False if it is damaged
        self.requeued: list[tuple[int, Delivery]] = []
        self.fresh: deque[Delivery] = deque()
        self.paged = 0  #: messages on disk only
        self._next_page = 0
        self.taken: set[int] = (
            set()
        )  #: offsets of paged messages that are neither ready nor settled

    def __len__(self) -> int:
        return len(self.requeued) + len(self.fresh) + self.paged

    def requeue(self, delivery: Delivery) -> None:
        """Put it back at its original position: requeued messages are older than all others."""
        heappush(self.requeued, (delivery.position, delivery))

    def page(self, offset: int, count: int = 1) -> None:
        """Count messages from an offset on that are in the log only."""
        if not self.paged:
            self._next_page = offset
        self.paged += count

    def peek(self, store: MessageLog | None) -> Delivery | None:
        while self.requeued:
            delivery = self.requeued[0][1]
            try:
                if not isinstance(delivery.message, PagedMessage) or self._load(delivery):
                    return delivery
            except OSError:
                return None  # the disk is full: as below
            heappop(self.requeued)
        if not self.fresh and self.paged:
            self._read(store)
        return self.fresh[0] if self.fresh else None

    def pop(self) -> Delivery:
        """Remove the head, which `peek` returned."""
        if self.requeued:
            return heappop(self.requeued)[1]
        return self.fresh.popleft()

    def _read(self, store: MessageLog | None) -> None:
        assert store is not None, "only a queue with a log pages"
        while self.paged and not self.fresh:
            if self._next_page >= store.log.next_offset:
                self.paged = 0  # the rest was in a damaged chunk, which was reported
                return
            try:
                records, self._next_page = store.batch(self._next_page)
            except OSError:
                return  # the disk is full: the messages are still pending in the log
            if self.taken:
                records = [record for record in records if record.offset not in self.taken]
            self.fresh.extend(map(self._admit, records))
            self.paged = max(0, self.paged - len(records))

    def snapshot(self) -> tuple[list[Delivery], int | None]:
        """The messages in memory, and the offset of the first paged one."""
        deliveries = [delivery for _, delivery in sorted(self.requeued, key=itemgetter(0))]
        return [*deliveries, *self.fresh], self._next_page if self.paged else None

    def remove(self, ids: Container[str]) -> list[Delivery]:
        """Remove messages in memory."""
        found = [one for one in self.snapshot()[0] if message_id(one) in ids]
        if found:
            gone = set(map(id, found))
            self.requeued = [entry for entry in self.requeued if id(entry[1]) not in gone]
            heapify(self.requeued)
            self.fresh = deque(one for one in self.fresh if id(one) not in gone)
        return found

    def take_page(self, offset: int, store: MessageLog | None) -> LoggedMessage | None:
        """Skip a paged message when its page is read."""
        is_paged = self.paged and self._next_page <= offset and offset not in self.taken
        if store is None or not is_paged or offset >= store.log.next_offset:
            return None
        records, _ = store.batch(offset)
        if not records or records[0].offset != offset:
            return None
        self.taken.add(offset)
        self.paged -= 1
        return records[0]

    def return_page(self, offset: int) -> bool:
        """Whether a message that was taken is read with its page again."""
        if offset not in self.taken:
            return False
        self.taken.remove(offset)
        if not self.paged or self._next_page > offset:
            return False
        self.paged += 1
        return True

    def clear(self) -> None:
        self.requeued.clear()
        self.fresh.clear()
        self.paged = 0
