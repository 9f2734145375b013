"""Delayed messages: on disk until they are due, eight bytes of memory each.

An `x-delayed-message` exchange delays messages with an `x-delay` header, as RabbitMQ's plugin does.
AMQP 1.0 and MQTT clients delay a message to any exchange or queue with `x-opt-delivery-delay`
(milliseconds) or `x-opt-delivery-time` (milliseconds since 1970): annotations or user properties.
Each virtual host has one store for these.

All messages that wait are in a log. The memory holds their due times by the minute, and in order
for the current minute only. A message is confirmed when it is in the log, and acknowledged there
when it is in the queues of its exchange, or cancelled.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Final

from penstock.broker.contract import (
    ACCEPTED,
    IN_SYNC,
    LOGGED,
    PERSISTENT,
    Binding,
    Exchange,
    Message,
    Sink,
)
from penstock.broker.delay import DELAY_HEADER, MAX_DELAY, TIME_HEADER, delay_of
from penstock.broker.log.observer import remove_tree
from penstock.broker.vhost import VirtualHost, directory_name
from penstock.core.basic_properties import decode_header, encode_header
from penstock.core.errors import NotFound
from penstock.destinations.exchange import ExchangeRouter, TopicPermissionRouter
from penstock.destinations.message_log import LoggedMessage, MessageLog

_MINUTE: Final = 60_000
_OFFSET_BITS: Final = 48
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1
#: Preserved sections of other protocols, which have the headers, too.
_PRESERVED: Final = (
    "x-mqtt-properties",
    "x-amqp-1.0-app-properties",
    "x-amqp-1.0-message-annotations",
)
#: Messages between two checks of the clock.
_MESSAGES_PER_SLICE: Final = 32
#: Messages of a log chunk that are kept for the next releases.
_CACHED_CHUNKS: Final = 4


def _x_delay(message: Message) -> int:
    if b"x-delay" not in message.header:
        return 0
    delay = (decode_header(message.header).headers or {}).get("x-delay", 0)
    return min(delay, MAX_DELAY) if isinstance(delay, int) else 0


class DelayedRouter:
    """`x-delayed-message`: delays messages with an `x-delay` header, in milliseconds.

    Other messages go to the router of `x-delayed-type`, as in RabbitMQ's plugin.
    """

    keyed = False

    def __init__(self, delayed: DelayedMessages, router: ExchangeRouter) -> None:
        self._delayed = delayed
        self._router = router

    def check(self, binding: Binding) -> None:
        self._router.check(binding)

    def add(self, binding: Binding) -> None:
        self._router.add(binding)

    def remove(self, binding: Binding) -> None:
        self._router.remove(binding)

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        if _x_delay(message) > 0:
            return (self._delayed,)
        return self._router.match(key, message)

    @property
    def uses_topic_permissions(self) -> bool:
        return (
            isinstance(self._router, TopicPermissionRouter) and self._router.uses_topic_permissions
        )

    def topics(self, keys: list[bytes], message: Message) -> Iterable[str]:
        return (
            self._router.topics(keys, message)
            if isinstance(self._router, TopicPermissionRouter)
            else ()
        )

    def topics_of(self, key: str, arguments: dict[str, Any]) -> Iterable[str]:
        return (
            self._router.topics_of(key, arguments)
            if isinstance(self._router, TopicPermissionRouter)
            else ()
        )


class DueTimes:
    """Offsets by the time they are due, in milliseconds of the loop's clock."""

    __slots__ = ("_current", "_minute", "_minutes")

    def __init__(self) -> None:
        self._minutes: dict[int, array[int]] = {}  # time in the minute and offset in 64 bits
        self._minute = -1  # the one that is in order
        self._current: list[int] = []  # due and offset

    def __len__(self) -> int:
        return len(self._current) + sum(map(len, self._minutes.values()))

    def add(self, due: int, offset: int) -> None:
        minute, rest = divmod(due, _MINUTE)
        if minute <= self._minute:
            heappush(self._current, due << _OFFSET_BITS | offset)
            return
        bucket = self._minutes.get(minute)
        if bucket is None:
            bucket = self._minutes[minute] = array("Q")
        bucket.append(rest << _OFFSET_BITS | offset)

    def first(self) -> tuple[int, int] | None:
        """The due time and the offset of the next one."""
        if not self._current and self._minutes:
            self._minute = minute = min(self._minutes)
            base = minute * _MINUTE << _OFFSET_BITS
            self._current = [base + each for each in self._minutes.pop(minute)]
            heapify(self._current)
        if not self._current:
            return None
        return self._current[0] >> _OFFSET_BITS, self._current[0] & _OFFSET_MASK

    def pop(self) -> None:
        heappop(self._current)


class DelayedMessages:
    """The messages of a virtual host, or of one exchange, that wait."""

    def __init__(self, vhost: VirtualHost, exchange: str | None = None, durable: bool = True):
        """Of an `x-delayed-message` exchange, or of all others."""
        self.name = ""  # not the name of a queue that dead letters avoid
        self.exchange = exchange
        self._vhost = vhost
        self._kernel = vhost.kernel
        self._due = DueTimes()
        self._cancelled = 0  #: those among the due times
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0
        self._chunks: dict[int, dict[int, LoggedMessage]] = {}  # by base offset
        name = f"{vhost.name}\0{'' if exchange is None else exchange}"
        directory = vhost.kernel.directory / "delayed" / directory_name(name)
        if not durable:
            remove_tree(directory, vhost.kernel.committer.observer)
        self._store = MessageLog(vhost.kernel, directory)
        for record in self._store.records():
            if record.transient:
                self._store.acknowledge(record.offset, record.message.spool is not None)
            else:
                self._wait(record.offset, self._delay(record.message, record.timestamp), record)
        self._arm()

    def __len__(self) -> int:
        return len(self._due) - self._cancelled

    def _delay(self, message: Message, published: int) -> int:
        if self.exchange is not None:
            return _x_delay(message)
        return delay_of(message, published / 1000)

    def push(self, message: Message) -> int:
        persistent = bool(message.flags & PERSISTENT)
        offset = self._store.append(message, transient=not persistent)
        self._wait(offset, self._delay(message, int(time.time() * 1000)), None)
        self._arm()
        return LOGGED | IN_SYNC if persistent else ACCEPTED

    def _wait(self, offset: int, delay: int, restored: LoggedMessage | None) -> None:
        waited = 0 if restored is None else self._store.log.now() - restored.timestamp
        remaining = max(0, delay - waited)
        self._due.add(int(self._kernel.loop.time() * 1000) + remaining, offset)

    def _arm(self) -> None:
        first = self._due.first()
        if first is None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
        elif self._timer is None or first[0] != self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due = first[0]
            when = (first[0] + 1) / 1000  # due times are rounded down
            self._timer = self._kernel.write_batch.call_at(when, self._release)

    def _release(self) -> None:
        self._timer = None
        now = int(self._kernel.loop.time() * 1000)
        released = 0
        while (first := self._due.first()) is not None and first[0] <= now:
            self._due.pop()
            self._publish(first[1])
            released += 1
            if released % _MESSAGES_PER_SLICE == 0 and self._kernel.write_batch.is_over():
                self._kernel.write_batch.defer(self._release)
                return
        if first is None:
            self._chunks.clear()
        self._arm()

    def _publish(self, offset: int) -> None:
        record = self._load(offset)
        if record is None:
            self._cancelled = max(0, self._cancelled - 1)
            return
        message = record.message
        name = message.exchange if self.exchange is None else self.exchange
        exchange = self._vhost.exchanges.get(name)
        outcome = ACCEPTED
        if exchange is not None:
            released = _after_delay(message)
            if message.spool is not None:
                released.spool = self._kernel.spools.relink(message.spool)
            outcome = exchange.accept(released)
        spooled = message.spool is not None
        if outcome & LOGGED:  # stored there first: it must be in one log at any time
            self._kernel.committer.after(lambda: self._store.acknowledge(offset, spooled))
        else:
            self._store.acknowledge(offset, spooled)

    def _load(self, offset: int) -> LoggedMessage | None:
        if offset in self._store.acks:
            return None
        for chunk in self._chunks.values():
            if offset in chunk:
                return chunk.pop(offset)
        records, _ = self._store.batch(offset)
        chunk = {record.offset: record for record in records}
        found = chunk.pop(offset, None)
        self._chunks[offset] = chunk
        while len(self._chunks) > _CACHED_CHUNKS:
            del self._chunks[next(iter(self._chunks))]
        return found

    # For the management API.

    def find(self, message_id: str | None = None) -> Iterator[tuple[int, LoggedMessage] | None]:
        """Due times, in milliseconds since 1970, and messages; None where others may run."""
        now = time.time() * 1000
        at = max(self._store.acks.floor, self._store.log.first_offset)
        while at < self._store.log.next_offset:
            records, at = self._store.batch(at)
            for record in records:
                due = record.timestamp + self._delay(record.message, record.timestamp)
                if due > now and message_id in (None, _message_id(record)):
                    yield due, record
            yield None

    def cancel(self, offset: int) -> None:
        """Raises `NotFound` unless a message with this number waits."""
        log = self._store.log
        pending = log.first_offset <= offset < log.next_offset and offset not in self._store.acks
        record = self._load(offset) if pending else None
        if record is None:
            raise NotFound(f"no delayed message {offset} in vhost '{self._vhost.name}'")
        self._store.acknowledge(offset, record.message.spool is not None)
        self._cancelled += 1

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._store.close()

    def delete(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._store.delete()


def _message_id(record: LoggedMessage) -> str | None:
    return decode_header(record.message.header).message_id


def _after_delay(message: Message) -> Message:
    """The message after its delay: `x-delay` is negated, so that consumers see it; the other
    headers are removed, so that a client that passes the message on does not delay it again."""
    properties = decode_header(message.header)
    headers: dict[str, Any] = dict(properties.headers or {})
    if isinstance(delay := headers.get("x-delay"), int) and delay > 0:
        headers["x-delay"] = -delay
    for name in (DELAY_HEADER, TIME_HEADER, *_PRESERVED):
        headers.pop(name, None)
    properties.headers = headers or None
    size = message.size
    return Message(message.route, encode_header(properties, size), message.body, message.flags)
