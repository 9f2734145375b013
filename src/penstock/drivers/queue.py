"""Queues: a driver that keeps messages in order until somebody is done with them.

The short way: when nothing waits and a consumer has credit, a message goes straight through, and
is never stored unless it must survive. Otherwise it joins the backlog (`backlog.py`), and the
store (`store.py`) where it is persistent or memory is short. Who is served next is `consumers.py`,
what the queue's arguments ask for is `limits.py`, what becomes of the dead is `deadletter.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.contract import (
    EXPIRES,
    PERSISTENT,
    PRIORITY,
    Channel,
    Delivery,
    Fragment,
    Message,
)
from penstock.broker.destinations import LOGGED, REFUSED, TAKEN
from penstock.broker.paths import folder
from penstock.broker.properties import decode_header, priority_of
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.drivers.backlog import Backlog
from penstock.drivers.consumers import Consumers
from penstock.drivers.deadletter import DeadLetters
from penstock.drivers.limits import Limits
from penstock.drivers.patience import Patience
from penstock.drivers.sending import Sending
from penstock.drivers.store import Record, Store

if TYPE_CHECKING:
    from penstock.broker.vhost import VirtualHost

#: What a waiting message takes beside its body: objects, header, key.
OVERHEAD: Final = 400


class Reader:
    """The queue's side of a consumer's channel."""

    __slots__ = ("pull", "sending")

    def __init__(self, pull: bool) -> None:
        self.pull = pull  #: `basic.get`: takes one message and is no consumer
        self.sending: Sending | None = None  #: a large message, half forwarded


class Queue:
    kind = "queue"

    def __init__(
        self,
        vhost: VirtualHost,
        name: str,
        *,
        type: str,  # noqa: A002 - the protocol's word
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        arguments: dict[str, Any],
    ) -> None:
        self.vhost = vhost
        self.name = name
        self.type = type
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner
        self.arguments = arguments
        self.kernel = vhost.kernel
        self.limits = Limits.of(arguments)
        self.consumers = Consumers(self.limits.single_active)
        self.ready = 0  #: messages that wait
        self.ready_bytes = 0
        self.unanswered = 0  #: messages that were delivered and not yet confirmed or failed
        self.deleted = False
        self._position = 0
        self._recovered = 0  #: what is in the log before this offset may have been delivered before
        self._ages = self.limits.ttl is not None
        self._stalled = False  #: waits for the disk
        self._memory = 0
        self._lanes = [Backlog(self._admit) for _ in range(self.limits.max_priority + 1)]
        self._dead_letters = DeadLetters(vhost, name, self.limits)
        timeout = self.limits.consumer_timeout
        self._patience = None if timeout is None else Patience(self.kernel, timeout)
        self._expiry: asyncio.TimerHandle | None = None
        self._unused: asyncio.TimerHandle | None = None
        self._store: Store | None = None
        self._logs = durable and owner is None
        if self._logs:
            self._store = Store(self.kernel, self._directory)
            self._recover()
        self.used()

    # The contract.

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        if arguments.get("post"):  # a publisher, and no consumer
            self.vhost.exchanges[""].channel_open(channel, {})
            return
        reader = Reader(bool(arguments.get("pull")))
        if not reader.pull:
            priority = arguments.get("x-priority", 0)
            if type(priority) is not int:
                raise PreconditionFailed(f"invalid arg 'x-priority': {priority!r} is no integer")
            where = f"queue '{self.name}' in vhost '{self.vhost.name}'"
            self.consumers.add(channel, priority, bool(arguments.get("exclusive")), where)
        channel.state = reader
        self.used()

    def channel_post(
        self, channel: Channel, fragment: Message | Fragment, receipt: int = 0
    ) -> None:
        """Messages reach a queue through an exchange; the default one knows it by its name."""
        self.vhost.exchanges[""].channel_post(channel, fragment, receipt)

    def channel_request(self, channel: Channel, credit: int) -> None:
        channel.credit = credit
        reader: Reader = channel.state
        if reader.sending is not None:
            if credit > 0:
                reader.sending.draw()
        elif reader.pull:
            self._pull(channel)
        elif credit > 0:
            self.consumers.ready(channel)
            if self.ready:
                self._drain()
        else:
            self.consumers.pause(channel)

    def channel_confirm(self, channel: Channel, delivery: Delivery) -> None:
        self.unanswered -= 1
        if self._patience is not None:
            self._patience.answered(delivery)
        if delivery.offset >= 0:
            self._done(delivery)

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        self.unanswered -= 1
        if self._patience is not None:
            self._patience.answered(delivery)
        if self.deleted:
            return
        limit = self.limits.delivery_limit
        if requeue and limit is not None and delivery.count >= limit:
            self._bury(delivery, "delivery_limit")
        elif requeue:
            self._give_back(delivery)
            self._drain()
            if self.limits.bounded and not self.limits.reject:
                self._drop_heads()
        else:
            self._bury(delivery, "rejected")

    def channel_close(self, channel: Channel) -> None:
        reader = channel.state
        if not isinstance(reader, Reader):
            self.vhost.exchanges[""].channel_close(channel)
            return
        if reader.sending is not None:
            reader.sending.cancel()
            reader.sending = None
        if reader.pull or self.deleted:
            return
        heir = self.consumers.remove(channel)
        if heir is not None and heir.credit > 0:
            self.consumers.ready(heir)
            self._drain()
        self.used()
        if self.auto_delete and not self.consumers:
            self.vhost.delete_queue(self.name)

    # In.

    def push(self, message: Message) -> int:
        consumers = self.consumers
        if not consumers.waiting or self.ready:
            return self._enqueue(message)
        channel = consumers.take()
        if channel.settled:
            if message.spool is None:
                channel.terminal.channel_forward(channel, message, None)
            else:
                self._forward(channel, Delivery(message, self._position))
            return TAKEN
        delivery = Delivery(message, self._position)
        self._position += 1
        self.unanswered += 1
        if self._ages or message.flags & EXPIRES:  # should it come back, its time goes on
            delivery.expires = self._expires(message, 0)
        outcome = TAKEN
        if self._logs and message.flags & PERSISTENT:
            delivery.offset = self._store.append(message)  # type: ignore[union-attr]
            outcome = LOGGED
        if self._patience is not None:
            self._patience.delivered(channel, delivery)
        if message.spool is None:
            channel.terminal.channel_forward(channel, message, delivery)
        else:
            self._forward(channel, delivery)
        return outcome

    def _enqueue(self, message: Message) -> int:
        size = message.size
        limits = self.limits
        if limits.bounded and limits.reject and self._overflows(1, size):
            if limits.dead_letter_rejects:
                self._dead_letters.send(message, "maxlen")
            return REFUSED
        persistent = self._logs and message.flags & PERSISTENT
        lane = self._lane(message)
        expires = 0.0
        pages = lane.paged or (self._memory > self.kernel.settings.queue_memory_bytes)
        if pages and len(self._lanes) == 1:
            lane.page(self._pager().append(message, transient=not persistent))
        else:
            delivery = Delivery(message, self._position)
            self._position += 1
            if persistent:
                delivery.offset = self._store.append(message)  # type: ignore[union-attr]
            if self._ages or message.flags & EXPIRES:
                expires = delivery.expires = self._expires(message, 0)
            lane.fresh.append(delivery)
            self._charge(len(message.body) + OVERHEAD)
        self.ready += 1
        self.ready_bytes += size
        if limits.bounded:
            self._drop_heads()
        if self._ages or message.flags & EXPIRES:
            self._watch_expiry(expires)
        return LOGGED if persistent else TAKEN

    def _drop_heads(self) -> None:
        """Until no more waits than may."""
        while self.ready and self._overflows(0, 0):
            try:
                self._bury(self._pop(), "maxlen")
            except LookupError:
                return

    def _lane(self, message: Message) -> Backlog:
        top = len(self._lanes) - 1
        if not top or not message.flags & PRIORITY:
            return self._lanes[0]
        return self._lanes[min(priority_of(message.header), top)]

    def _overflows(self, more: int, size: int) -> bool:
        limits = self.limits
        return (limits.max_length is not None and self.ready + more > limits.max_length) or (
            limits.max_bytes is not None and self.ready_bytes + size > limits.max_bytes
        )

    def _charge(self, size: int) -> None:
        self._memory += size
        self.kernel.pool.charge(size)

    def _discharge(self, size: int) -> None:
        self._memory -= size
        self.kernel.pool.discharge(size)

    # Out.

    def _pop(self) -> Delivery:
        """The head. Only while something is ready."""
        for lane in reversed(self._lanes):
            delivery = lane.peek(self._store)
            if delivery is not None:
                lane.pop()
                message = delivery.message
                self.ready -= 1
                self.ready_bytes -= (
                    len(message.body) if message.spool is None else message.spool.size
                )
                self._discharge(len(message.body) + OVERHEAD)
                return delivery
        if any(lane.paged for lane in self._lanes):  # until the disk takes something again
            if not self._stalled:
                self._stalled = True
                self.kernel.committer.after(self._go_on, lambda _: self._go_on())
        else:
            self.ready = self.ready_bytes = 0  # a damaged chunk took the rest; it was reported
        raise LookupError

    def _go_on(self) -> None:
        self._stalled = False
        if not self.deleted:
            self._drain()

    def _drain(self) -> None:
        """Deliver while there is something to deliver and somebody to take it."""
        consumers = self.consumers
        while self.ready and consumers.waiting:
            try:
                delivery = self._pop()
            except LookupError:
                return
            if delivery.expires and delivery.expires <= self.kernel.loop.time():
                self._bury(delivery, "expired")
                continue
            self._deliver(consumers.take(), delivery)
        if self.ready and self._expiry is None:
            self._watch_expiry()

    def _pull(self, channel: Channel) -> None:
        while self.ready:
            try:
                delivery = self._pop()
            except LookupError:
                return
            if delivery.expires and delivery.expires <= self.kernel.loop.time():
                self._bury(delivery, "expired")
                continue
            channel.credit = 0
            self._deliver(channel, delivery)
            break
        if self.ready and self._expiry is None:
            self._watch_expiry()

    def _deliver(self, channel: Channel, delivery: Delivery) -> None:
        if delivery.message.spool is None:
            channel.terminal.channel_forward(channel, delivery.message, delivery)
        else:
            self._forward(channel, delivery)
        if not channel.settled:
            self.unanswered += 1
            if self._patience is not None:
                self._patience.delivered(channel, delivery)
        elif delivery.offset >= 0:
            self._done(delivery)

    def _forward(self, channel: Channel, delivery: Delivery) -> None:
        """A large message, fragment by fragment, as the terminal draws them."""
        reader: Reader = channel.state
        if not reader.pull:
            self.consumers.pause(channel)

        def finished() -> None:
            reader.sending = None
            if not reader.pull and channel.credit > 0 and not self.deleted:
                self.consumers.ready(channel)
                self._drain()

        reader.sending = Sending(self.kernel, channel, delivery, finished)
        reader.sending.open()

    def _give_back(self, delivery: Delivery) -> None:
        delivery.count += 1
        message = delivery.message
        self._lane(message).give_back(delivery)
        self.ready += 1
        self.ready_bytes += message.size
        self._charge(len(message.body) + OVERHEAD)
        if delivery.expires:
            self._watch_expiry(delivery.expires)

    def _bury(self, delivery: Delivery, reason: str) -> None:
        """Dead-letter a message, or drop it, and be done with it."""
        if reason == "expired":
            self.kernel.metrics.expired += 1
        outcome = self._dead_letters.send(delivery.message, reason)
        if delivery.offset >= 0:
            if outcome & LOGGED:  # it may not be in neither log, even if the power fails
                self.kernel.committer.after(lambda: self._done(delivery))
            else:
                self._done(delivery)

    def _done(self, delivery: Delivery) -> None:
        """Nothing more is wanted of a message that is in the store."""
        if self._store is not None and not self.deleted:
            self._store.done(delivery.offset, delivery.message.spool is not None)

    # Time.

    def _expires(self, message: Message, waited: int) -> float:
        """When a message that has waited so many milliseconds is to expire, in the loop's time."""
        ttl = self.limits.ttl
        if message.flags & EXPIRES:
            own = int(decode_header(message.header).expiration or 0)
            ttl = own if ttl is None else min(ttl, own)
        if ttl is None:
            return 0.0
        return self.kernel.loop.time() + max(0, ttl - waited) / 1000

    def _watch_expiry(self, sooner: float = 0.0) -> None:
        """Be woken when the head is due. Only the head expires: what is behind it waits."""
        if self._expiry is not None:
            if not sooner or sooner >= self._expiry.when():
                return
            self._expiry.cancel()
            self._expiry = None
        due = [
            head.expires
            for lane in self._lanes
            if (head := lane.peek(self._store)) is not None and head.expires
        ]
        if due:
            self._expiry = self.kernel.turn.at(min(due), self._expire)

    def _expire(self) -> None:
        self._expiry = None
        now = self.kernel.loop.time()
        for lane in self._lanes:
            while (head := lane.peek(self._store)) is not None and head.expires:
                if head.expires > now:
                    break
                lane.pop()
                self.ready -= 1
                message = head.message
                self.ready_bytes -= (
                    len(message.body) if message.spool is None else message.spool.size
                )
                self._discharge(len(message.body) + OVERHEAD)
                self._bury(head, "expired")
        self._watch_expiry()

    def used(self) -> None:
        """Somebody showed an interest: an unused queue may have a time to live."""
        if self.limits.expires is None:
            return
        if self._unused is not None:
            self._unused.cancel()
            self._unused = None
        if not self.consumers:
            when = self.kernel.loop.time() + self.limits.expires / 1000
            self._unused = self.kernel.turn.at(when, self._die_unused)

    def _die_unused(self) -> None:
        self.vhost.delete_queue(self.name)

    # The store.

    @property
    def _directory(self) -> Any:
        return self.kernel.directory / "queues" / folder(self.vhost.name) / folder(self.name)

    def _pager(self) -> Store:
        if self._store is None:
            path = self.kernel.spools.directory / f"queue-{id(self):x}"
            path.mkdir(parents=True)
            self._store = Store(self.kernel, path)
        return self._store

    def _admit(self, record: Record) -> Delivery:
        """A message comes back from disk."""
        delivery = Delivery(record.message, self._position, record.offset)
        self._position += 1
        delivery.count = 1 if record.offset < self._recovered else 0
        if self.limits.ttl is not None or record.message.flags & EXPIRES:
            waited = self._store.log.now() - record.timestamp  # type: ignore[union-attr]
            delivery.expires = self._expires(record.message, waited)
        self._charge(len(record.message.body) + OVERHEAD)
        return delivery

    def _recover(self) -> None:
        """What was persistent is here again. It may have been delivered before: say so."""
        assert self._store is not None
        self._recovered = self._store.log.next_offset
        for record in self._store.records():
            if record.transient:
                self._store.done(record.offset, record.message.spool is not None)
                continue
            message = record.message
            self.ready += 1
            self.ready_bytes += message.size
            lane = self._lane(message)
            full = self._memory > self.kernel.settings.queue_memory_bytes
            if len(self._lanes) == 1 and (lane.paged or full):
                lane.page(record.offset)
            else:
                lane.fresh.append(self._admit(record))
        self._watch_expiry()

    # Management.

    @property
    def message_count(self) -> int:
        return self.ready

    @property
    def consumer_count(self) -> int:
        return len(self.consumers)

    def purge(self) -> int:
        purged = self.ready
        if self._store is not None and not self.unanswered:
            self._store.all_done()
            self._discharge(self._memory)
            for lane in self._lanes:
                lane.clear()
            self.ready = self.ready_bytes = 0
            return purged
        while self.ready:
            try:
                delivery = self._pop()
            except LookupError:
                break
            if delivery.offset >= 0:
                self._done(delivery)
        return purged

    def close(self) -> None:
        for timer in (self._expiry, self._unused):
            if timer is not None:
                timer.cancel()
        self._discharge(self._memory)
        if self._store is not None:
            self._store.close()

    def delete(self) -> None:
        self.deleted = True
        for channel in self.consumers:
            reader: Reader = channel.state
            if reader.sending is not None:
                reader.sending.cancel()
            why = NotFound(f"queue '{self.name}' in vhost '{self.vhost.name}' was deleted")
            channel.terminal.channel_failure(channel, 0, why)
        for timer in (self._expiry, self._unused):
            if timer is not None:
                timer.cancel()
        self._discharge(self._memory)
        for lane in self._lanes:  # a client that owes an answer may keep the queue itself alive
            lane.clear()
        if self._store is not None:
            self._store.delete()

    def describe(self) -> dict[str, Any]:
        active = self.consumers.active if self.limits.single_active else None
        return {
            "name": self.name,
            "vhost": self.vhost.name,
            "type": self.type,
            "durable": self.durable,
            "auto_delete": self.auto_delete,
            "exclusive": self.owner is not None,
            "arguments": self.arguments,
            "state": "running",
            "messages_ready": self.ready,
            "messages_unacknowledged": self.unanswered,
            "messages": self.ready + self.unanswered,
            "message_bytes_ready": self.ready_bytes,
            "memory": self._memory,
            "consumers": len(self.consumers),
            "single_active_consumer_tag": getattr(active, "tag", None),
        }
