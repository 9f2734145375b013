"""The messages of a queue that are ready for delivery, in memory, on disk, or both, in order.

A durable queue logs persistent messages. Any queue that exceeds its share of memory pages to a log,
a temporary one if it has none; so do messages that were delivered and stay unacknowledged
(`inflight_pager.py`). `MessageStore` counts messages and memory, restores persistent
messages after a restart, and expires messages at the head. The queue decides who receives messages
and what becomes of expired ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

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
from penstock.broker.log.ack_file import AckFile
from penstock.broker.log.chunk import SPOOLED
from penstock.broker.log.log import Log
from penstock.broker.log.observer import remove_tree
from penstock.broker.spool import BodyFiles
from penstock.core.basic_properties import decode_header
from penstock.core.units import parse_count


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


#: Record flag: a transient message, paged; not restored after a restart.
TRANSIENT_RECORD: Final = 1

#: Record flag: a transient message that was delivered before it was paged, so not ready.
DELIVERED_RECORD: Final = 2

#: Acknowledgements between two truncations of the log.
TRIM_INTERVAL: Final = 1024


class BrowsedMessage(NamedTuple):
    id: str  #: identifies it while it is in the queue
    message: Message
    redelivered: bool
    timestamp: int | None = None  #: milliseconds since the epoch; streams know it


def message_id(delivery: Delivery) -> str:
    """The offset of a logged message; others are identified by their position."""
    return str(delivery.offset) if delivery.offset >= 0 else f"m{delivery.position}"


class LoggedMessage(NamedTuple):
    offset: int
    timestamp: int  #: milliseconds since the epoch
    message: Message
    transient: bool


class MessageLog:
    """A queue's messages on disk: log, acknowledgement file and bodies of large messages.

    The files are created when they are first used: there may be very many queues that never have a
    persistent message.
    """

    def __init__(self, kernel: Kernel, directory: Path) -> None:
        self.directory = directory
        self._kernel = kernel
        self._committer = kernel.committer
        self._bodies = BodyFiles(directory, kernel.committer)
        self._trim_at = 0
        if directory.exists():
            self._open()

    @property
    def is_new(self) -> bool:
        """Nothing was ever stored."""
        return "log" not in vars(self)

    @cached_property
    def log(self) -> Log:
        return self._open()[0]

    @cached_property
    def acks(self) -> AckFile:
        return self._open()[1]

    def _open(self) -> tuple[Log, AckFile]:
        """Open the files together: acknowledgements beyond the end of the log must not count."""
        kernel = self._kernel
        segment_bytes = min(kernel.settings.segment_bytes, 16 << 20)
        log = Log(
            self.directory, kernel.committer, segment_bytes=segment_bytes, report=kernel.report
        )
        acks = AckFile(self.directory / "acks", kernel.committer, report=kernel.report)
        acks.truncate(log.next_offset)
        vars(self).update(log=log, acks=acks)
        self._trim_at = acks.floor + TRIM_INTERVAL
        self._bodies.sweep(lambda offset: offset < log.next_offset and offset not in acks)
        return log, acks

    def append(self, message: Message, transient: bool = False, delivered: bool = False) -> int:
        flags = TRANSIENT_RECORD if transient else 0
        offset = self.log.append(message, flags | DELIVERED_RECORD if delivered else flags)
        if message.spool is not None:
            self._bodies.add(offset, message.spool)
        return offset

    def append_run(self, messages: list[Message]) -> None:
        """Small ones; their offsets follow each other."""
        self.log.append_run(messages)

    def acknowledge(self, offset: int, spooled: bool) -> None:
        self.acks.add(offset)
        if spooled:
            self._bodies.remove(offset)
        self._trim()

    def acknowledge_run(self, offsets: list[int]) -> bool:
        """Acknowledge messages that are not spooled; False if their offsets do not follow each
        other."""
        if not self.acks.add_run(offsets):
            return False
        self._trim()
        return True

    def _trim(self) -> None:
        floor = self.acks.floor
        if floor >= self._trim_at:
            self._trim_at = floor + TRIM_INTERVAL
            self.log.truncate_before(floor)

    def acknowledge_all(self) -> None:
        self.acks.add_range(self.acks.floor, self.log.next_offset)
        self.log.truncate_before(self.acks.floor)
        self._bodies.sweep(lambda offset: False)

    def message(self, offset: int) -> Message | None:
        """A message that is not spooled; None if it is damaged."""
        if offset >= self.log.written_offset:
            self.log.write()
        chunk = self.log.read(offset)
        if chunk is None or not chunk.base <= offset < chunk.end:
            return None
        return chunk.messages()[offset - chunk.base]

    def batch(self, offset: int, with_delivered: bool = False) -> tuple[list[LoggedMessage], int]:
        """Unacknowledged records of the first chunk at or after `offset`, and the next offset."""
        if offset >= self.log.written_offset:
            self.log.write()
        chunk = self.log.read(offset)
        if chunk is None:
            return [], self.log.next_offset
        start = max(0, offset - chunk.base)
        acks = self.acks
        if chunk.base > offset:
            acks.add_range(offset, chunk.base)  # damaged; it was reported
        records = []
        flags, timestamps = chunk.flags, chunk.timestamps
        for index, message in enumerate(chunk.messages(start), start):
            at = chunk.base + index
            if at in acks or (flags[index] & DELIVERED_RECORD and not with_delivered):
                continue
            if flags[index] & SPOOLED:
                try:
                    message.spool = self._bodies.open(at, message.size)
                except FileNotFoundError:
                    acks.add(at)
                    continue
                message.body = b""
            records.append(
                LoggedMessage(at, timestamps[index], message, bool(flags[index] & TRANSIENT_RECORD))
            )
        return records, chunk.base + chunk.count

    def timestamp(self, offset: int) -> int | None:
        if offset >= self.log.written_offset:
            self.log.write()
        chunk = self.log.read(offset) if offset < self.log.next_offset else None
        if chunk is None or not chunk.base <= offset < chunk.base + chunk.count:
            return None
        return chunk.timestamps[offset - chunk.base]

    def count_pending(self, offset: int) -> tuple[int, int, int]:
        """The number and the size of the messages of the chunk at `offset`, and the offset after
        them, if it begins there and all are small, persistent and unacknowledged; else zeros."""
        chunk = self.log.read(offset)
        if chunk is None or chunk.base != offset or any(chunk.flags):
            return 0, 0, 0
        done = self.acks.done
        if offset < self.acks.floor or (done and not done.isdisjoint(range(offset, chunk.end))):
            return 0, 0, 0
        return chunk.count, chunk.header.body_bytes, chunk.end

    @property
    def first_offset(self) -> int:
        """Not above the offset of any unacknowledged record."""
        return max(self.acks.floor, self.log.first_offset)

    def records(self) -> Iterator[LoggedMessage]:
        """Every unacknowledged record, oldest first."""
        if self.is_new:
            return
        offset = self.first_offset
        while offset < self.log.next_offset:
            records, offset = self.batch(offset, with_delivered=True)
            yield from records

    def close(self) -> None:
        if not self.is_new:
            self.log.close()
            self.acks.close()

    def delete(self) -> None:
        if self.is_new:
            return
        with contextlib.suppress(FileNotFoundError):
            self.log.delete()
            self.acks.delete()
        remove_tree(self.directory, self._committer.observer)
