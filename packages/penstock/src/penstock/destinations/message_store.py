"""The messages of a queue that are ready for delivery, in memory, on disk, or both, in order.

A durable queue logs persistent messages. Any queue that exceeds its share of memory pages to a log,
a temporary one if it has none; so do messages that were delivered and stay unacknowledged
(`inflight_pager.py`). `MessageStore` counts messages and memory, restores persistent
messages after a restart, and expires messages at the head. The queue decides who receives messages
and what becomes of expired ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from penstock.broker.buckets import MESSAGE_OVERHEAD_BYTES
from penstock.broker.content_header import message_priority
from penstock.broker.contract import (
    ACCEPTED,
    EXPIRES,
    IN_SYNC,
    LOGGED,
    PERSISTENT,
    PRIORITY,
    Delivery,
    Message,
    PagedMessage,
    paged_message,
)
from penstock.broker.declarations import QueueLimits
from penstock.broker.kernel import Kernel
from penstock.core.basic_properties import decode_header
from penstock.core.units import parse_count
from penstock.destinations.backlog import Backlog, message_id
from penstock.destinations.message_log import (
    LoggedMessage,
    MessageLog,
)


class BrowsedMessage(NamedTuple):
    id: str  #: identifies it while it is in the queue
    message: Message
    redelivered: bool
    timestamp: int | None = None  #: milliseconds since the epoch; streams know it


class MessageStore:
    __slots__ = (
        "_closed",
        "_expired",
        "_kernel",
        "_lanes",
        "_next_run",
        "_pool",
        "_recovered",
        "_sent",
        "_stalled",
        "_store",
        "_timer",
        "_tracks_sent",
        "_ttl",
        "has_ttl",
        "log",
        "logged",
        "memory",
        "position",
        "ready",
        "ready_bytes",
    )

    def __init__(
        self,
        kernel: Kernel,
        directory: Path | None,
        limits: QueueLimits,
        *,
        expired: Callable[[Delivery], None],
        recovered: Callable[[], None],
        settled: Collection[int] = (),
        tracks_sent: bool = False,
        in_sync: bool = False,
    ) -> None:
        """With `tracks_sent`, the caller must call `mark_sent` before it sends a logged message.

        `expired` is called with expired messages, `recovered` when a head that could not be read
        may be readable again.
        """
        self._kernel = kernel
        self.set_in_sync(in_sync)
        self._pool = kernel.pool
        self._ttl = limits.ttl
        self._expired = expired
        self._recovered = recovered
        self.ready = 0  #: messages
        self.ready_bytes = 0
        self.memory = 0
        self.position = 0  #: of the next message
        self.has_ttl = limits.ttl is not None  #: the queue has a TTL
        self._lanes = [
            Backlog(self._admit, self._load_requeued) for _ in range(limits.max_priority + 1)
        ]
        self._next_run = 0  #: records before this offset were logged before the last restart
        self._tracks_sent = tracks_sent
        self._sent: Container[int] = ()  #: offsets sent before the last restart, if tracked
        self._stalled = False  #: the head cannot be read
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        #: The log of persistent messages; None for a transient queue.
        self.log = None if directory is None else MessageLog(kernel, directory)
        self._store = self.log  #: for paging
        if self.log is not None:
            self._recover(self.log, settled)

    def set_in_sync(self, in_sync: bool) -> None:
        """Whether confirms wait for the in-sync members of a cluster."""
        self.logged = LOGGED | IN_SYNC if in_sync else LOGGED  #: the outcome of logged messages

    def add(self, message: Message) -> int:
        """Returns ACCEPTED or `logged`."""
        log = self.log if message.flags & PERSISTENT else None
        lane = self._lanes[0] if len(self._lanes) == 1 else self._lane(message)
        expires_later = self.has_ttl or message.flags & EXPIRES
        expires = 0.0
        if self._pages(lane):
            lane.page(self._pager().append(message, transient=log is None))
        else:
            delivery = Delivery(message, self.position)
            self.position += 1
            if log is not None:
                delivery.offset = log.append(message)
            if expires_later:
                expires = delivery.expires = self.expiry(message)
            lane.fresh.append(delivery)
            self._charge(message)
        self.ready += 1
        self.ready_bytes += message.size
        if expires_later:
            self.schedule_expiry(expires)
        return ACCEPTED if log is None else self.logged

    def requeue(self, delivery: Delivery) -> None:
        """Put a delivered message back at its original position."""
        if self.memory > self._kernel.settings.queue_memory_bytes:
            self.page_out(delivery)
        message = delivery.message
        self._lane(message).requeue(delivery)
        self.ready += 1
        self.ready_bytes += message.size
        self._charge(message)
        if delivery.expires:
            self.schedule_expiry(delivery.expires)

    # Messages of unacknowledged deliveries. A queue with priorities has no pages, here as well.

    def page_out(self, delivery: Delivery) -> None:
        message = delivery.message
        if self._closed or len(self._lanes) > 1 or message.spool is not None:
            return
        if isinstance(message, PagedMessage):
            return
        if delivery.offset < 0:
            delivery.offset = self._pager().append(message, transient=True, delivered=True)
        delivery.message = paged_message(message.header[:12], message.flags)

    def load(self, delivery: Delivery) -> bool:
        if not isinstance(delivery.message, PagedMessage):
            return True
        if self._store is None:  # deleted
            return False
        message = self._store.message(delivery.offset)
        if message is None:
            self._store.acknowledge(delivery.offset, spooled=False)
            return False
        delivery.message = message
        return True

    def _load_requeued(self, delivery: Delivery) -> bool:
        paged = delivery.message
        if self.load(delivery):
            size = len(delivery.message.body)
            self.memory += size
            self._pool.charge(size)
            return True
        self.ready -= 1
        self.ready_bytes -= paged.size
        self.memory -= MESSAGE_OVERHEAD_BYTES
        self._pool.discharge(MESSAGE_OVERHEAD_BYTES)
        return False

    def _lane(self, message: Message) -> Backlog:
        top = len(self._lanes) - 1
        if not top or not message.flags & PRIORITY:
            return self._lanes[0]
        return self._lanes[min(message_priority(message.header), top)]

    def _pages(self, lane: Backlog) -> bool:
        """Whether the next message goes to disk only."""
        if len(self._lanes) > 1:
            return False
        return lane.paged > 0 or self.memory > self._kernel.settings.queue_memory_bytes

    @property
    def has_requeued(self) -> bool:
        return any(lane.requeued for lane in self._lanes)

    @property
    def first_position(self) -> int:
        """Not above the position of any message."""
        return min((lane.requeued[0][0] for lane in self._lanes if lane.requeued), default=0)

    @property
    def paged(self) -> bool:
        return any(lane.paged for lane in self._lanes)

    def _charge(self, message: Message) -> None:
        size = len(message.body) + MESSAGE_OVERHEAD_BYTES
        self.memory += size
        self._pool.charge(size)

    def _discharge_all(self) -> None:
        self._pool.discharge(self.memory)
        self.memory = 0

    def pop(self) -> Delivery | None:
        """Remove and return the head; None if there is none, or it cannot be read now."""
        for lane in reversed(self._lanes):
            if lane.peek(self._store) is not None:
                return self._pop(lane)
        if self.paged or self.has_requeued:  # unreadable until the disk works again
            if not self._stalled:
                self._stalled = True
                self._kernel.committer.after(self._resume, lambda _: self._resume())
        else:
            self.ready = self.ready_bytes = 0  # the rest was in a damaged chunk, which was reported
        return None

    def _pop(self, lane: Backlog) -> Delivery:
        delivery = lane.pop()
        message = delivery.message
        spool = message.spool
        self.ready -= 1
        self.ready_bytes -= len(message.body) if spool is None else spool.size
        size = len(message.body) + MESSAGE_OVERHEAD_BYTES
        self.memory -= size
        self._pool.discharge(size)
        return delivery

    def _remove(self, message: Message) -> None:
        """As `_pop`, which is called for every message."""
        spool = message.spool
        self.ready -= 1
        self.ready_bytes -= len(message.body) if spool is None else spool.size
        size = len(message.body) + MESSAGE_OVERHEAD_BYTES
        self.memory -= size
        self._pool.discharge(size)

    def peek_run(self, most: int) -> list[Delivery]:
        """The next messages, as far as they have the route and flags of the first, are in memory,
        were not delivered before and do not expire."""
        lane = self._lanes[0]
        if len(self._lanes) > 1 or lane.requeued or lane.peek(self._store) is None:
            return []
        first = lane.fresh[0].message
        route, flags = first.route, first.flags
        found = []
        for delivery in islice(lane.fresh, most):
            message = delivery.message
            if (
                message.flags != flags
                or message.route != route
                or message.spool is not None
                or delivery.count
                or delivery.expires
            ):
                break
            found.append(delivery)
        return found

    def drop_run(self, deliveries: list[Delivery]) -> None:
        """Remove what `peek_run` returned."""
        fresh, count = self._lanes[0].fresh, len(deliveries)
        for _ in deliveries:
            fresh.popleft()
        size = sum([len(delivery.message.body) for delivery in deliveries])
        self.ready -= count
        self.ready_bytes -= size
        size += count * MESSAGE_OVERHEAD_BYTES
        self.memory -= size
        self._pool.discharge(size)

    def _resume(self) -> None:
        self._stalled = False
        self._recovered()

    def acknowledge(self, delivery: Delivery) -> None:
        if self._store is not None:
            self._store.acknowledge(delivery.offset, delivery.message.spool is not None)

    def acknowledge_run(self, deliveries: list[Delivery]) -> None:
        """Those of them that are in the log."""
        store = self._store
        if store is None:
            return
        offsets = [delivery.offset for delivery in deliveries]
        spools = [delivery.message.spool for delivery in deliveries if offsets[0] >= 0]
        if spools.count(None) == len(offsets) and store.acknowledge_run(offsets):
            return
        for delivery in deliveries:
            if delivery.offset >= 0:
                self.acknowledge(delivery)

    def mark_sent(self, delivery: Delivery) -> None:
        """Record that a logged message is about to be sent."""
        if self.log is not None and delivery.offset >= 0:
            self.log.acks.mark_sent(delivery.offset)

    def browse(self) -> Iterator[BrowsedMessage]:
        """The messages that are ready now, in order; nothing is removed or marked."""
        lanes = [lane.snapshot() for lane in reversed(self._lanes)]
        store = self._store
        end = 0 if store is None else store.log.next_offset
        for deliveries, page in lanes:
            for delivery in deliveries:
                message: Message | None = delivery.message
                if store is not None and isinstance(message, PagedMessage):
                    message = store.message(delivery.offset)
                if message is not None:
                    yield BrowsedMessage(message_id(delivery), message, delivery.count > 0)
            while store is not None and page is not None and page < end:
                records, page = store.batch(page)
                for record in records:
                    if record.offset < end:
                        again = record.offset < self._next_run
                        yield BrowsedMessage(str(record.offset), record.message, again)

    @property
    def head(self) -> Message | None:
        """The first message; None if there is none, or if it cannot be read."""
        for lane in reversed(self._lanes):
            if (first := lane.peek(self._store)) is not None:
                return first.message
        return None

    def timestamp(self, message_id: str) -> int | None:
        """When a message was logged, in milliseconds since the epoch; None if it was not."""
        offset = parse_count(message_id)
        if offset is None or self._store is None:
            return None
        return self._store.timestamp(offset)

    def take(self, ids: Iterable[str]) -> list[Delivery]:
        """Remove these messages wherever they are. Each must be acknowledged, and released, or put
        back; those that are not ready any more are left out."""
        wanted = set(ids)
        taken: list[Delivery] = []
        for lane in reversed(self._lanes):
            for delivery in lane.remove(wanted):
                try:
                    paged = isinstance(delivery.message, PagedMessage)
                    if paged and not self._load_requeued(delivery):
                        continue
                except OSError:  # as if it were not ready
                    lane.requeue(delivery)
                    continue
                self._remove(delivery.message)
                taken.append(delivery)
                wanted.discard(message_id(delivery))
        offsets = [offset for one in wanted if (offset := parse_count(one)) is not None]
        for offset in sorted(offsets):
            record = self._lanes[0].take_page(offset, self._store)
            if record is not None:
                self.ready -= 1
                self.ready_bytes -= record.message.size
                taken.append(Delivery(record.message, self.position, record.offset))
        return taken

    def release(self, delivery: Delivery) -> None:
        """A message that was taken is settled."""
        self._lanes[0].taken.discard(delivery.offset)

    def put_back(self, delivery: Delivery) -> None:
        """Return a message that was taken to its place."""
        if self._lanes[0].return_page(delivery.offset):
            self.ready += 1
            self.ready_bytes += delivery.message.size
        else:
            self.requeue(delivery)

    def clear(self) -> None:
        """Remove all messages; only while none is unacknowledged, as its record is removed, too."""
        if self._store is not None:
            self._store.acknowledge_all()
        self._empty()

    def _empty(self) -> None:
        for lane in self._lanes:
            lane.clear()
        self.ready = self.ready_bytes = 0
        self._discharge_all()

    def set_ttl(self, ttl: int | None) -> None:
        """Of messages that are added or read from disk from now on."""
        self._ttl = ttl
        self.has_ttl = ttl is not None

    def expiry(self, message: Message, waited: int = 0) -> float:
        """The loop time at which a message expires that was queued `waited` milliseconds ago; 0 for
        never."""
        ttl = self._ttl
        if message.flags & EXPIRES:
            own = int(decode_header(message.header).expiration or 0)
            ttl = own if ttl is None else min(ttl, own)
        if ttl is None:
            return 0.0
        return self._kernel.loop.time() + max(0, ttl - waited) / 1000

    def schedule_expiry(self, sooner: float = 0.0) -> None:
        """Set the timer for the first head that expires. Only heads expire."""
        if self._timer is not None:
            if not sooner or sooner >= self._timer.when():
                return
            self._timer.cancel()
            self._timer = None
        if not self.ready:
            return
        due = [
            head.expires
            for lane in self._lanes
            if (head := lane.peek(self._store)) is not None and head.expires
        ]
        if due:
            self._timer = self._kernel.write_batch.call_at(min(due), self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._kernel.loop.time()
        for lane in self._lanes:
            while (head := lane.peek(self._store)) is not None and head.expires:
                if head.expires > now:
                    break
                self._expired(self._pop(lane))
        self.schedule_expiry()

    def _pager(self) -> MessageLog:
        if self._store is None:
            path = self._kernel.spools.directory / f"queue-{id(self):x}"
            path.mkdir(parents=True)
            self._store = MessageLog(self._kernel, path)
        return self._store

    def _admit(self, record: LoggedMessage) -> Delivery:
        """Load a message from disk."""
        message = record.message
        delivery = Delivery(message, self.position, record.offset)
        self.position += 1
        if record.offset < self._next_run:
            delivery.count = int(not self._tracks_sent or record.offset in self._sent)
        if self.has_ttl or message.flags & EXPIRES:
            waited = self._pager().log.now() - record.timestamp
            delivery.expires = self.expiry(message, waited)
        self._charge(message)
        return delivery

    def _recover(self, store: MessageLog, settled: Collection[int]) -> None:
        """Restore persistent messages, as redelivered unless it is known that they were not sent.

        Offsets in `settled` are acknowledged, whatever the log says.
        """
        if store.is_new:
            return
        self._next_run = store.log.next_offset
        self._sent = frozenset(store.acks.sent)
        offset, end = store.first_offset, store.log.next_offset
        while offset < end:
            if self._pages(self._lanes[0]) and not settled:
                count, size, after = store.count_pending(offset)
                if count:
                    self._lanes[0].page(offset, count)
                    self.ready += count
                    self.ready_bytes += size
                    offset = after
                    continue
            records, offset = store.batch(offset, with_delivered=True)
            for record in records:
                self._recover_record(record, store, settled)
        self.schedule_expiry()

    def _recover_record(
        self, record: LoggedMessage, store: MessageLog, settled: Collection[int]
    ) -> None:
        message = record.message
        if record.transient or record.offset in settled:
            store.acknowledge(record.offset, message.spool is not None)
            return
        self.ready += 1
        self.ready_bytes += message.size
        lane = self._lane(message)
        if self._pages(lane):
            lane.page(record.offset)
        else:
            lane.fresh.append(self._admit(record))

    def close(self) -> None:
        """Stop; logged messages stay."""
        self._stop()
        if self._store is not None:
            self._store.close()

    def delete(self) -> None:
        """Stop and delete all messages; unacknowledged deliveries may keep this object alive."""
        self._stop()
        self._empty()
        store, self._store, self.log = self._store, None, None
        if store is not None:
            store.delete()

    def _stop(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._discharge_all()
