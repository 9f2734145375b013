"""What waits in a queue: in memory, on disk, or both, in the order it is to be delivered.

Messages wait in lanes, one for each priority (`message_store.py`). A durable queue logs what is
persistent; any queue that outgrows its share of memory pages to a store, a temporary one if it has
none of its own (`store.py`). It counts what waits and what that takes of memory, brings back after
a restart what was persistent, and watches the time of the heads: a message that expires here is
handed to `expired`, and `recovered` is called when the disk works again after a head could not be
read. Who gets what waits, and what becomes of what nobody gets, is the queue's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections import deque
from collections.abc import Callable, Container, Iterator
from heapq import heappop, heappush
from pathlib import Path
from typing import Final, NamedTuple

from penstock.broker.content_header import message_priority
from penstock.broker.contract import (
    ACCEPTED,
    EXPIRES,
    LOGGED,
    PERSISTENT,
    PRIORITY,
    Delivery,
    Message,
)
from penstock.broker.declarations import QueueLimits
from penstock.broker.kernel import Kernel
from penstock.broker.log.ack_file import AckFile
from penstock.broker.log.chunk import SPOOLED
from penstock.broker.log.log import Log
from penstock.broker.spool import Spool
from penstock.core.basic_properties import decode_header

#: What a waiting message takes beside its body: objects, header, key.
MESSAGE_OVERHEAD_BYTES: Final = 400


class MessageStore:
    __slots__ = (
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
        "ages",
        "log",
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
        settled: Container[int] = (),
        tracks_sent: bool = False,
    ) -> None:
        """With `tracks_sent`, whoever sends what is logged says so (`sent`)."""
        self._kernel = kernel
        self._pool = kernel.pool
        self._ttl = limits.ttl
        self._expired = expired
        self._recovered = recovered
        self.ready = 0  #: messages that wait
        self.ready_bytes = 0
        self.memory = 0
        self.position = 0  #: of the next message that comes
        self.ages = limits.ttl is not None  #: every message has its time here
        self._lanes = [Backlog(self._admit) for _ in range(limits.max_priority + 1)]
        self._next_run = 0  #: what is in the log before this offset is of an earlier run
        self._tracks_sent = tracks_sent
        self._sent: Container[int] = ()  #: what earlier runs have sent, if that is tracked
        self._stalled = False  #: waits for the disk
        self._timer: asyncio.TimerHandle | None = None
        #: Where persistent messages go; without it nothing outlives the broker.
        self.log = None if directory is None else MessageLog(kernel, directory)
        self._store = self.log  #: where messages are paged
        if self.log is not None:
            self._recover(self.log, settled)

    # In.

    def add(self, message: Message) -> int:
        """A message that has come to wait: TAKEN, or LOGGED."""
        log = self.log if message.flags & PERSISTENT else None
        lane = self._lanes[0] if len(self._lanes) == 1 else self._lane(message)
        mortal = self.ages or message.flags & EXPIRES
        expires = 0.0
        if self._pages(lane):
            lane.page(self._pager().append(message, transient=log is None))
        else:
            delivery = Delivery(message, self.position)
            self.position += 1
            if log is not None:
                delivery.offset = log.append(message)
            if mortal:
                expires = delivery.expires = self.expiry(message)
            lane.fresh.append(delivery)
            self._charge(message)
        self.ready += 1
        self.ready_bytes += message.size
        if mortal:
            self.watch(expires)
        return ACCEPTED if log is None else LOGGED

    def give_back(self, delivery: Delivery) -> None:
        """A message that was delivered waits again, where it stood."""
        message = delivery.message
        self._lane(message).give_back(delivery)
        self.ready += 1
        self.ready_bytes += message.size
        self._charge(message)
        if delivery.expires:
            self.watch(delivery.expires)

    def _lane(self, message: Message) -> Backlog:
        top = len(self._lanes) - 1
        if not top or not message.flags & PRIORITY:
            return self._lanes[0]
        return self._lanes[min(message_priority(message.header), top)]

    def _pages(self, lane: Backlog) -> bool:
        """Whether the next one in a lane is to wait on disk only."""
        if len(self._lanes) > 1:
            return False
        return lane.paged > 0 or self.memory > self._kernel.settings.queue_memory_bytes

    @property
    def returned(self) -> bool:
        """Some have been delivered before."""
        return any(lane.returned for lane in self._lanes)

    @property
    def paged(self) -> bool:
        """Some wait on disk only."""
        return any(lane.paged for lane in self._lanes)

    def _charge(self, message: Message) -> None:
        size = len(message.body) + MESSAGE_OVERHEAD_BYTES
        self.memory += size
        self._pool.charge(size)

    def _discharge_all(self) -> None:
        self._pool.discharge(self.memory)
        self.memory = 0

    # Out.

    def pop(self) -> Delivery | None:
        """The head, no longer here; None when there is none, or none that can be read now."""
        for lane in reversed(self._lanes):
            if lane.peek(self._store) is not None:
                return self._pop(lane)
        if self.paged:  # until the disk takes something again
            if not self._stalled:
                self._stalled = True
                self._kernel.committer.after(self._go_on, lambda _: self._go_on())
        else:
            self.ready = self.ready_bytes = 0  # a damaged chunk took the rest; it was reported
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

    def _go_on(self) -> None:
        self._stalled = False
        self._recovered()

    def done(self, delivery: Delivery) -> None:
        """Nothing more is wanted of a message that is in the store."""
        if self._store is not None:
            self._store.done(delivery.offset, delivery.message.spool is not None)

    def sent(self, delivery: Delivery) -> None:
        """A message is about to be sent; if it is logged, the next run shall know."""
        if self.log is not None and delivery.offset >= 0:
            self.log.acks.mark_sent(delivery.offset)

    def clear(self) -> None:
        """Forget all that waits. Only while no delivery is out: its record would go too."""
        if self._store is not None:
            self._store.all_done()
        self._empty()

    def _empty(self) -> None:
        for lane in self._lanes:
            lane.clear()
        self.ready = self.ready_bytes = 0
        self._discharge_all()

    # Time.

    def expiry(self, message: Message, waited: int = 0) -> float:
        """When a message that has waited so many milliseconds is to expire, in the loop's time."""
        ttl = self._ttl
        if message.flags & EXPIRES:
            own = int(decode_header(message.header).expiration or 0)
            ttl = own if ttl is None else min(ttl, own)
        if ttl is None:
            return 0.0
        return self._kernel.loop.time() + max(0, ttl - waited) / 1000

    def watch(self, sooner: float = 0.0) -> None:
        """Be woken when a head is due. Only heads expire: what is behind them waits."""
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
        self.watch()

    # The store.

    def _pager(self) -> MessageLog:
        if self._store is None:
            path = self._kernel.spools.directory / f"queue-{id(self):x}"
            path.mkdir(parents=True)
            self._store = MessageLog(self._kernel, path)
        return self._store

    def _admit(self, record: LoggedMessage) -> Delivery:
        """A message comes back from disk."""
        message = record.message
        delivery = Delivery(message, self.position, record.offset)
        self.position += 1
        if record.offset < self._next_run:
            delivery.count = int(not self._tracks_sent or record.offset in self._sent)
        if self.ages or message.flags & EXPIRES:
            waited = self._pager().log.now() - record.timestamp
            delivery.expires = self.expiry(message, waited)
        self._charge(message)
        return delivery

    def _recover(self, store: MessageLog, settled: Container[int]) -> None:
        """What was persistent is here again. It may have been delivered before: say so, unless
        it is known that it was not.

        What is known to be settled is done with, whatever the store says.
        """
        self._next_run = store.log.next_offset
        self._sent = frozenset(store.acks.sent)
        for record in store.records():
            message = record.message
            if record.transient or record.offset in settled:
                store.done(record.offset, message.spool is not None)
                continue
            self.ready += 1
            self.ready_bytes += message.size
            lane = self._lane(message)
            if self._pages(lane):
                lane.page(record.offset)
            else:
                lane.fresh.append(self._admit(record))
        self.watch()

    # The end.

    def close(self) -> None:
        """Stop, keeping what is logged."""
        self._stop()
        if self._store is not None:
            self._store.close()

    def delete(self) -> None:
        """Stop, keeping nothing: a client that owes an answer may keep this object alive."""
        self._stop()
        self._empty()
        store, self._store, self.log = self._store, None, None
        if store is not None:
            store.delete()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._discharge_all()


# Messages that wait, in order: those that came back first, then the fresh, then those on disk.
#
# Memory holds the head. When it holds enough, further messages go to the store only (*paged*), and
# are read back a chunk at a time as the head is used up; nothing is kept in memory for them. A
# queue with priorities has one backlog for each, and does not page.


class Backlog:
    __slots__ = ("_admit", "_next_page", "fresh", "paged", "returned")

    def __init__(self, admit: Callable[[LoggedMessage], Delivery]) -> None:
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

    def peek(self, store: MessageLog | None) -> Delivery | None:
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

    def _read(self, store: MessageLog | None) -> None:
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


# A queue's messages on disk: the log, what of it is done, and the bodies of large messages.
#
# A durable queue logs every persistent message and marks it done in the acknowledgement file. Any
# queue that outgrows its share of memory pages to the log too; what was not persistent is marked
# so, and forgotten at the next start.

#: Record flag: paged only for want of memory; does not survive a restart.
TRANSIENT_RECORD: Final = 1

#: How many messages are done before the log is asked to drop segments.
TRIM_INTERVAL: Final = 1024


class LoggedMessage(NamedTuple):
    offset: int
    timestamp: int  #: milliseconds since the epoch
    message: Message
    transient: bool


class MessageLog:
    def __init__(self, kernel: Kernel, directory: Path) -> None:
        self.directory = directory
        self._committer = kernel.committer
        segment_bytes = min(kernel.settings.segment_bytes, 16 << 20)
        self.log = Log(
            directory, kernel.committer, segment_bytes=segment_bytes, report=kernel.report
        )
        self.acks = AckFile(directory / "acks", kernel.committer, report=kernel.report)
        self.acks.cut(self.log.next_offset)  # of what a power failure took, nothing is done
        self._trim_at = self.acks.floor + TRIM_INTERVAL
        self._sweep()

    def append(self, message: Message, transient: bool = False) -> int:
        offset = self.log.append(message, TRANSIENT_RECORD if transient else 0)
        if message.spool is not None:
            message.spool.link(self._body(offset))
            self._committer.adopt(os.open(self.directory, os.O_RDONLY))
        return offset

    def done(self, offset: int, spooled: bool) -> None:
        acks = self.acks
        acks.add(offset)
        if spooled:
            self._body(offset).unlink(missing_ok=True)
        if acks.floor >= self._trim_at:
            self._trim_at = acks.floor + TRIM_INTERVAL
            self.log.truncate_before(acks.floor)

    def all_done(self) -> None:
        """Nothing of what was logged so far is wanted any more."""
        self.acks.add_range(self.acks.floor, self.log.next_offset)
        self.log.truncate_before(self.acks.floor)
        for body in self.directory.glob("*.body"):
            body.unlink(missing_ok=True)

    def batch(self, offset: int) -> tuple[list[LoggedMessage], int]:
        """The live records of the first chunk at or after `offset`, and where to go on."""
        if offset >= self.log.written_offset:
            self.log.write()
        chunk = self.log.read(offset)
        if chunk is None:
            return [], self.log.next_offset
        start = max(0, offset - chunk.base)
        acks = self.acks
        if chunk.base > offset:
            acks.add_range(offset, chunk.base)  # damaged, and reported
        records = []
        flags, timestamps = chunk.flags, chunk.timestamps
        for index, message in enumerate(chunk.messages(start), start):
            at = chunk.base + index
            if at in acks:
                continue
            if flags[index] & SPOOLED:
                path = self._body(at)
                if not path.exists():
                    acks.add(at)
                    continue
                message.spool = Spool(path, owned=False)
                message.body = b""
            records.append(
                LoggedMessage(at, timestamps[index], message, bool(flags[index] & TRANSIENT_RECORD))
            )
        return records, chunk.base + chunk.count

    def records(self) -> Iterator[LoggedMessage]:
        """Every live record, oldest first."""
        offset = max(self.acks.floor, self.log.first_offset)
        while offset < self.log.next_offset:
            records, offset = self.batch(offset)
            yield from records

    def _body(self, offset: int) -> Path:
        return self.directory / f"{offset:020d}.body"

    def _sweep(self) -> None:
        for body in self.directory.glob("*.body"):
            offset = int(body.stem)
            if offset in self.acks or offset >= self.log.next_offset:
                body.unlink()

    def close(self) -> None:
        self.log.close()
        self.acks.close()

    def delete(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.log.delete()
            self.acks.delete()
        shutil.rmtree(self.directory, ignore_errors=True)
