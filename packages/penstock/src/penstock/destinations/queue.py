"""Queues: a driver that keeps messages in order until somebody is done with them.

The short way: when nothing waits and a consumer has credit, a message goes straight through, and
is never stored unless it must survive. Otherwise it waits (`message_store.py`). Who is served next
is
`consumers.py`, what the queue's arguments ask for is `broker/declarations.py`, how long an answer
may take is
`queue.py`, how long the queue may go unused `queue.py`, what becomes of the dead is
`dead_letters.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.broker.contract import (
    ACCEPTED,
    EXPIRES,
    LOGGED,
    PERSISTENT,
    REJECTED,
    Binding,
    Channel,
    Delivery,
    Fragment,
    Message,
)
from penstock.broker.declarations import QueueLimits
from penstock.broker.fragments import FragmentSender
from penstock.broker.kernel import Kernel
from penstock.broker.vhost import directory_name
from penstock.core.errors import AccessRefused, NotFound, PreconditionFailed
from penstock.destinations.dead_letters import DeadLetterPublisher
from penstock.destinations.message_store import MessageStore

if TYPE_CHECKING:
    from penstock.broker.vhost import VirtualHost


class QueueReader:
    """The queue's side of a consumer's channel."""

    __slots__ = ("pull", "sending")

    def __init__(self, pull: bool) -> None:
        self.pull = pull  #: `basic.get`: takes one message and is no consumer
        self.sending: FragmentSender | None = None  #: a large message, half forwarded


class ClassicQueue:
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
        self.limits = QueueLimits.of(arguments)
        self.consumers = QueueConsumers(self.limits.single_active)
        self.unacknowledged = 0  #: messages that were delivered and not yet confirmed or failed
        self.deleted = False
        #: The next active consumer is not served yet: what the last one holds may come back.
        self._awaiting_handover = False
        self._dead_letters = DeadLetterPublisher(vhost, name, self.limits)
        timeout = self.limits.consumer_timeout
        self._consumer_timeout = None if timeout is None else ConsumerTimeout(self.kernel, timeout)
        self._expiry = QueueExpiry(self.kernel, self.limits.expires, self._expire)
        kept = self.kernel.directory / "queues" / directory_name(vhost.name) / directory_name(name)
        self._messages = MessageStore(
            self.kernel,
            kept if durable and owner is None else None,
            self.limits,
            expired=self._dead_letter_expired,
            recovered=self._drain,
        )
        self.used()

    # The contract.

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        if arguments.get("post"):  # a publisher, and no consumer
            self.vhost.exchanges[""].channel_open(channel, {})
            return
        reader = QueueReader(bool(arguments.get("pull")))
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
        reader: QueueReader = channel.state
        if reader.sending is not None:
            if credit > 0:
                reader.sending.draw()
        elif reader.pull:
            self._pull(channel)
        elif credit > 0:
            if not self._awaiting_handover:
                self.consumers.ready(channel)
                if self._messages.ready:
                    self._drain()
        else:
            self.consumers.pause(channel)

    def channel_confirm(self, channel: Channel, delivery: Delivery) -> None:
        self.unacknowledged -= 1
        if self._consumer_timeout is not None:
            self._consumer_timeout.answered(delivery)
        if delivery.offset >= 0:
            self._messages.done(delivery)
        if not self.unacknowledged and self._awaiting_handover:
            self._hand_over()

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        self.unacknowledged -= 1
        if self._consumer_timeout is not None:
            self._consumer_timeout.answered(delivery)
        if self.deleted:
            return
        limit = self.limits.delivery_limit
        if requeue and limit is not None and delivery.count >= limit:
            self._dead_letter(delivery, "delivery_limit")
        elif requeue:
            delivery.count += 1
            self._messages.give_back(delivery)
            self._drain()
            if self.limits.bounded and not self.limits.reject:
                self._drop_heads()
        else:
            self._dead_letter(delivery, "rejected")
        if not self.unacknowledged and self._awaiting_handover:
            self._hand_over()

    def channel_close(self, channel: Channel) -> None:
        reader = channel.state
        if not isinstance(reader, QueueReader):
            self.vhost.exchanges[""].channel_close(channel)
            return
        if reader.sending is not None:
            reader.sending.cancel()
            reader.sending = None
        if reader.pull or self.deleted:
            return
        successor = self.consumers.remove(channel)
        if successor is not None:
            self._awaiting_handover = self.unacknowledged > 0
            if not self._awaiting_handover:
                self._hand_over()
        elif not self.consumers:
            self._awaiting_handover = False
        self.used()
        if self.auto_delete and not self.consumers:
            self.vhost.delete_queue(self.name)

    def _hand_over(self) -> None:
        """Serve the next active consumer: all that the last one held is answered or here again."""
        self._awaiting_handover = False
        active = self.consumers.active
        if active is not None and active.credit > 0:
            self.consumers.ready(active)
            self._drain()

    # In.

    def push(self, message: Message) -> int:
        messages = self._messages
        channel = None if messages.ready else self.consumers.take()
        if channel is None:
            outcome = self._enqueue(message)
            if self._awaiting_handover:  # as RabbitMQ, which serves consumers when something comes
                self._hand_over()
            return outcome
        if channel.settled:
            if message.spool is None:
                channel.terminal.channel_forward(channel, message, None)
            else:
                self._forward(channel, Delivery(message, messages.position))
            return ACCEPTED
        delivery = Delivery(message, messages.position)
        messages.position += 1
        self.unacknowledged += 1
        if messages.ages or message.flags & EXPIRES:  # should it come back, its time goes on
            delivery.expires = messages.expiry(message)
        outcome = ACCEPTED
        if message.flags & PERSISTENT and messages.log is not None:
            delivery.offset = messages.log.append(message)
            outcome = LOGGED
        if self._consumer_timeout is not None:
            self._consumer_timeout.delivered(channel, delivery)
        if message.spool is None:
            channel.terminal.channel_forward(channel, message, delivery)
        else:
            self._forward(channel, delivery)
        return outcome

    def _enqueue(self, message: Message) -> int:
        limits = self.limits
        if not limits.bounded:
            return self._messages.add(message)
        messages = self._messages
        if limits.reject and limits.exceeded(
            messages.ready + 1, messages.ready_bytes + message.size
        ):
            if limits.dead_letter_rejects:
                self._dead_letters.send(message, "maxlen")
            return REJECTED
        outcome = messages.add(message)
        self._drop_heads()
        return outcome

    def _drop_heads(self) -> None:
        """Until no more waits than may."""
        messages = self._messages
        while messages.ready and self.limits.exceeded(messages.ready, messages.ready_bytes):
            delivery = messages.pop()
            if delivery is None:
                return
            self._dead_letter(delivery, "maxlen")

    # Out.

    def _drain(self) -> None:
        """Deliver while there is something to deliver and somebody to take it."""
        messages, consumers = self._messages, self.consumers
        while messages.ready and consumers.waiting:
            delivery = messages.pop()
            if delivery is None:
                return
            if delivery.expires and delivery.expires <= self.kernel.loop.time():
                self._dead_letter_expired(delivery)
                continue
            channel = consumers.take()
            assert channel is not None, "one was waiting a moment ago"
            self._deliver(channel, delivery)
        messages.watch()

    def _pull(self, channel: Channel) -> None:
        """Deliver one, if there is one."""
        messages = self._messages
        while messages.ready and (delivery := messages.pop()) is not None:
            if delivery.expires and delivery.expires <= self.kernel.loop.time():
                self._dead_letter_expired(delivery)
                continue
            channel.credit = 0
            self._deliver(channel, delivery)
            break
        messages.watch()

    def _deliver(self, channel: Channel, delivery: Delivery) -> None:
        if delivery.message.spool is None:
            channel.terminal.channel_forward(channel, delivery.message, delivery)
        else:
            self._forward(channel, delivery)
        if not channel.settled:
            self.unacknowledged += 1
            if self._consumer_timeout is not None:
                self._consumer_timeout.delivered(channel, delivery)
        elif delivery.offset >= 0:
            self._messages.done(delivery)

    def _forward(self, channel: Channel, delivery: Delivery) -> None:
        """A large message, fragment by fragment, as the terminal draws them."""
        reader: QueueReader = channel.state
        if not reader.pull:
            self.consumers.pause(channel)

        def finished() -> None:
            reader.sending = None
            if not reader.pull and channel.credit > 0 and not self.deleted:
                self.consumers.ready(channel)
                self._drain()

        reader.sending = FragmentSender(self.kernel, channel, delivery, finished)
        reader.sending.open()

    def _dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Dead-letter a message, or drop it, and be done with it."""
        outcome = self._dead_letters.send(delivery.message, reason)
        if delivery.offset < 0:
            return
        if outcome & LOGGED:  # it may not be in neither log, even if the power fails
            self.kernel.committer.after(lambda: self._messages.done(delivery))
        else:
            self._messages.done(delivery)

    def _dead_letter_expired(self, delivery: Delivery) -> None:
        self.kernel.metrics.expired += 1
        self._dead_letter(delivery, "expired")

    # Life.

    def used(self) -> None:
        """Somebody showed an interest: an unused queue may have a time to live."""
        self._expiry.used(still=len(self.consumers) > 0)

    def _expire(self) -> None:
        self.vhost.delete_queue(self.name)

    def bound(self, binding: Binding) -> None:
        """Exchanges know where their bindings lead; it makes no difference here."""

    unbound = bound

    def close(self) -> None:
        self._stop()
        self._messages.close()

    def delete(self) -> None:
        self.deleted = True
        why = NotFound(f"queue '{self.name}' in vhost '{self.vhost.name}' was deleted")
        for channel in self.consumers:
            reader: QueueReader = channel.state
            if reader.sending is not None:
                reader.sending.cancel()
            channel.terminal.channel_failure(channel, 0, why)
        self._stop()
        self._messages.delete()
        self.owner = None  # which may have gone, and is not to wait for us

    def _stop(self) -> None:
        self._expiry.close()
        if self._consumer_timeout is not None:
            self._consumer_timeout.close()

    # Management.

    @property
    def ready(self) -> int:
        """How many messages wait."""
        return self._messages.ready

    @property
    def ready_bytes(self) -> int:
        return self._messages.ready_bytes

    @property
    def memory(self) -> int:
        return self._messages.memory

    @property
    def message_count(self) -> int:
        return self._messages.ready

    @property
    def consumer_count(self) -> int:
        return len(self.consumers)

    def purge(self) -> int:
        messages = self._messages
        purged = messages.ready
        if not self.unacknowledged:
            messages.clear()
        while messages.ready and (delivery := messages.pop()) is not None:
            if delivery.offset >= 0:
                messages.done(delivery)
        return purged

    def describe(self) -> dict[str, Any]:
        return describe_queue(self)


# Whose turn it is: the consumers of one queue, in the order they are served.
#
# Those with credit wait in a round. A consumer of higher priority is served before all of lower
# ones for as long as it has credit. With a single active consumer only the first to come is in the
# round; the next takes over when it leaves.


class QueueConsumers:
    __slots__ = ("_levels", "_order", "exclusive", "single_active", "waiting")

    def __init__(self, single_active: bool) -> None:
        self.single_active = single_active
        self.exclusive = False
        #: Who would take a message now, of the highest priority that has any; next one first.
        self.waiting: deque[Channel] = deque()
        self._levels: dict[int, deque[Channel]] = {0: self.waiting}
        self._order: dict[Channel, int] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Channel]:
        return iter(list(self._order))

    @property
    def active(self) -> Channel | None:
        return next(iter(self._order), None)

    def add(self, channel: Channel, priority: int, exclusive: bool, where: str) -> None:
        if self.exclusive or (exclusive and (self._order or self.single_active)):
            raise AccessRefused(f"{where} in exclusive use")
        self.exclusive = exclusive
        self._order[channel] = priority
        self._levels.setdefault(priority, deque())

    def remove(self, channel: Channel) -> Channel | None:
        """Forget a consumer. Returns the one that became active by it, if any."""
        was_active = self.active is channel
        self.pause(channel)
        del self._order[channel]
        self.exclusive = False
        return self.active if self.single_active and was_active else None

    def ready(self, channel: Channel) -> None:
        """It has credit."""
        if self.single_active and self.active is not channel:
            return
        level = self._levels[self._order[channel]]
        if channel not in level:
            level.append(channel)
            self._choose()

    def pause(self, channel: Channel) -> None:
        level = self._levels[self._order[channel]]
        if channel in level:
            level.remove(channel)
            self._choose()

    def take(self) -> Channel | None:
        """The next in the round, one credit poorer; None when nobody waits."""
        waiting = self.waiting
        if not waiting:
            return None
        channel = waiting[0]
        credit = channel.credit - 1
        channel.credit = credit
        if credit <= 0:
            waiting.popleft()
            if not waiting:
                self._choose()
        elif len(waiting) > 1:
            waiting.rotate(-1)
        return channel

    def _choose(self) -> None:
        if len(self._levels) == 1:
            return
        for priority in sorted(self._levels, reverse=True):
            if self._levels[priority]:
                self.waiting = self._levels[priority]
                return
        self.waiting = self._levels[0]


# Deliveries that may not go unanswered for ever (`x-consumer-timeout`); by default they may.


class ConsumerTimeout:
    __slots__ = ("_due", "_kernel", "_milliseconds", "_timer")

    def __init__(self, kernel: Kernel, milliseconds: int) -> None:
        self._kernel = kernel
        self._milliseconds = milliseconds
        self._due: dict[Delivery, tuple[float, Channel]] = {}  # the earliest first
        self._timer: asyncio.TimerHandle | None = None

    def delivered(self, channel: Channel, delivery: Delivery) -> None:
        self._due[delivery] = (
            self._kernel.loop.time() + self._milliseconds / 1000,
            channel,
        )
        self._arm()

    def answered(self, delivery: Delivery) -> None:
        self._due.pop(delivery, None)

    def _arm(self) -> None:
        if self._timer is None and self._due:
            due, _ = next(iter(self._due.values()))
            self._timer = self._kernel.write_batch.call_at(due, self._look)

    def _look(self) -> None:
        """End the channels that let a delivery wait too long; what they hold goes back."""
        self._timer = None
        now = self._kernel.loop.time()
        for delivery, (due, channel) in list(self._due.items()):
            if due > now:
                break
            if delivery in self._due:  # its channel's end may have answered others
                del self._due[delivery]
                why = PreconditionFailed(
                    "delivery acknowledgement on channel timed out. "
                    f"Timeout value used: {self._milliseconds} ms"
                )
                channel.terminal.channel_failure(channel, 0, why)
        self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


# A queue nobody uses may have a time to live (`x-expires`); by default it has none.


class QueueExpiry:
    __slots__ = ("_expire", "_kernel", "_milliseconds", "_timer")

    def __init__(self, kernel: Kernel, milliseconds: int | None, die: Callable[[], None]) -> None:
        self._kernel = kernel
        self._milliseconds = milliseconds
        self._expire = die
        self._timer: asyncio.TimerHandle | None = None

    def used(self, still: bool) -> None:
        """Somebody showed an interest: its time begins again, or stands still while in use."""
        if self._milliseconds is None:
            return
        self.close()
        if not still:
            when = self._kernel.loop.time() + self._milliseconds / 1000
            self._timer = self._kernel.write_batch.call_at(when, self._expire)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


# A queue as management shows it, under RabbitMQ's field names.


def describe_queue(queue: ClassicQueue) -> dict[str, Any]:
    active = queue.consumers.active if queue.limits.single_active else None
    return {
        "name": queue.name,
        "vhost": queue.vhost.name,
        "type": queue.type,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.owner is not None,
        "arguments": queue.arguments,
        "state": "running",
        "messages_ready": queue.ready,
        "messages_unacknowledged": queue.unacknowledged,
        "messages": queue.ready + queue.unacknowledged,
        "message_bytes_ready": queue.ready_bytes,
        "memory": queue.memory,
        "consumers": len(queue.consumers),
        "single_active_consumer_tag": getattr(active, "tag", None),
    }
