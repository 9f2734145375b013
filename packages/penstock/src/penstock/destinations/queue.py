"""The classic queue: stores messages in order until they are acknowledged.

If the queue is empty and a consumer has credit, a message is forwarded at once, and stored only if
it is persistent. Otherwise it goes to the `MessageStore`. The order of consumers and their timeout
are in `queue_consumers.py`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

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
from penstock.broker.message_run import MAX_RUN_MESSAGES, MessageRun
from penstock.broker.policies import EffectivePolicy, describe_policy
from penstock.broker.vhost import VirtualHost, directory_name
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.destinations.dead_letters import DeadLetterPublisher
from penstock.destinations.message_store import BrowsedMessage, MessageStore
from penstock.destinations.queue_consumers import ConsumerTimeout, QueueConsumers


def _as_persistent(message: Message) -> Message:
    """In a cluster, quorum queues store every message."""
    stored = Message(message.route, message.header, message.body, message.flags | PERSISTENT)
    stored.spool = message.spool
    return stored


class QueueReader:
    """The queue's state of a consumer's channel."""

    __slots__ = ("pull", "sending")

    def __init__(self, pull: bool) -> None:
        self.pull = pull  #: `basic.get`: one message, not a consumer
        self.sending: FragmentSender | None = None  #: a large message in progress


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
        self.policy = vhost.policies.of_queue(name, arguments)
        self.limits = QueueLimits.of(self.policy.merged(arguments))
        self.consumers = QueueConsumers(self.limits.single_active)
        self.unacknowledged = 0  #: deliveries
        # Messages since the start of the broker.
        self.published = 0
        self.delivered = 0
        self.acknowledged = 0
        self.deleted = False
        #: The next active consumer waits: the last one's deliveries may be requeued.
        self._awaiting_handover = False
        self._dead_letters = DeadLetterPublisher(vhost, name, self.limits)
        timeout = self.limits.consumer_timeout
        self._consumer_timeout = None if timeout is None else ConsumerTimeout(self.kernel, timeout)
        self._expiry = QueueExpiry(self.kernel, self.limits.expires, self._expire)
        self._in_sync = self._confirms_in_sync()
        kept = self.kernel.directory / "queues" / directory_name(vhost.name) / directory_name(name)
        self._messages = MessageStore(
            self.kernel,
            kept if durable and owner is None else None,
            self.limits,
            expired=self._dead_letter_expired,
            recovered=self._drain,
            in_sync=self._in_sync,
        )
        self.used()

    # The contract.

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        if arguments.get("post"):  # a publisher
            self.vhost.exchanges[""].channel_open(channel, {})
            return
        reader = QueueReader(bool(arguments.get("pull")))
        if not reader.pull:
            priority = arguments.get("x-priority", 0)
            if type(priority) is not int:
                raise PreconditionFailed(
                    f"invalid arg 'x-priority': {priority!r} is not an integer"
                )
            where = f"queue '{self.name}' in vhost '{self.vhost.name}'"
            self.consumers.add(channel, priority, bool(arguments.get("exclusive")), where)
        channel.state = reader
        channel.pages = self._messages
        self.used()

    def channel_post(
        self, channel: Channel, fragment: Message | Fragment, receipt: int = 0
    ) -> None:
        """Messages reach a queue through an exchange, here the default one."""
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
        self.acknowledged += 1
        if self._consumer_timeout is not None:
            self._consumer_timeout.on_settled(delivery)
        if delivery.offset >= 0:
            self._messages.acknowledge(delivery)
        if not self.unacknowledged and self._awaiting_handover:
            self._hand_over()

    def channel_confirm_run(self, channel: Channel, deliveries: list[Delivery]) -> None:
        count = len(deliveries)
        self.unacknowledged -= count
        self.acknowledged += count
        if self._consumer_timeout is not None:
            for delivery in deliveries:
                self._consumer_timeout.on_settled(delivery)
        self._messages.acknowledge_run(deliveries)
        if not self.unacknowledged and self._awaiting_handover:
            self._hand_over()

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        self.unacknowledged -= 1
        if self._consumer_timeout is not None:
            self._consumer_timeout.on_settled(delivery)
        if self.deleted:
            return
        limit = self.limits.delivery_limit
        if requeue and limit is not None and delivery.count >= limit:
            self._dead_letter(delivery, "delivery_limit")
        elif requeue:
            delivery.count += 1
            self._messages.requeue(delivery)
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
        """Serve the next active consumer: the last one's deliveries are settled or requeued."""
        self._awaiting_handover = False
        active = self.consumers.active
        if active is not None and active.credit > 0:
            self.consumers.ready(active)
            self._drain()

    def push(self, message: Message) -> int:
        messages = self._messages
        if self._in_sync:
            if self.kernel.committer.refuses:
                return REJECTED
            if not message.flags & PERSISTENT and self.arguments.get("x-queue-type") == "quorum":
                message = _as_persistent(message)
        self.published += 1
        channel = None if messages.ready else self.consumers.take()
        if channel is None:
            outcome = self._enqueue(message)
            if self._awaiting_handover:  # as RabbitMQ does on a publish
                self._hand_over()
            return outcome
        self.delivered += 1
        if channel.settled:
            if message.spool is None:
                channel.terminal.channel_forward(channel, message, None)
            else:
                self._forward(channel, Delivery(message, messages.position))
            return ACCEPTED
        delivery = Delivery(message, messages.position)
        messages.position += 1
        self.unacknowledged += 1
        if messages.has_ttl or message.flags & EXPIRES:  # in case it is requeued
            delivery.expires = messages.expiry(message)
        outcome = ACCEPTED
        if message.flags & PERSISTENT and messages.log is not None:
            delivery.offset = messages.log.append(message)
            outcome = messages.logged
        if self._consumer_timeout is not None:
            self._consumer_timeout.on_delivered(channel, delivery)
        if message.spool is None:
            channel.terminal.channel_forward(channel, message, delivery)
        else:
            self._forward(channel, delivery)
        return outcome

    @property
    def takes_runs(self) -> bool:
        return not self.limits.reject and not self._in_sync

    def push_run(self, run: MessageRun) -> int:
        messages = self._messages
        channel = None if messages.ready else self.consumers.sole()
        if (
            channel is None
            or channel.forward_run is None
            or messages.has_ttl
            or run.flags & EXPIRES
            or self._consumer_timeout is not None
        ):
            return self._push_each(run)
        count = len(run)
        if channel.credit < count:
            split = channel.credit  # which the first part uses up
            sent = self.push_run(run.part(0, split))
            return sent | self._push_each(run.part(split, count))
        log = messages.log if run.flags & PERSISTENT else None
        deliveries: list[Delivery] | None = None
        if not channel.settled:
            position = messages.position
            offsets = repeat(-1) if log is None else itertools.count(log.log.next_offset)
            deliveries = list(map(Delivery, run.messages, itertools.count(position), offsets))
        channel.credit -= count
        if not channel.forward_run(channel, run, deliveries, 0):
            channel.credit += count
            return self._push_each(run)
        self.published += count
        self.delivered += count
        if channel.credit <= 0:
            self.consumers.pause(channel)
        if deliveries is None:
            return ACCEPTED
        messages.position += count
        self.unacknowledged += count
        if log is None:
            return ACCEPTED
        log.append_run(run.messages)
        return messages.logged

    def _push_each(self, run: MessageRun) -> int:
        outcome = ACCEPTED
        for message in run.messages:
            outcome |= self.push(message)
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
        """Drop messages until the queue is within its limits."""
        messages = self._messages
        while messages.ready and self.limits.exceeded(messages.ready, messages.ready_bytes):
            delivery = messages.pop()
            if delivery is None:
                return
            self._dead_letter(delivery, "maxlen")

    def _drain(self) -> None:
        """Deliver while there are messages and consumers with credit."""
        messages, consumers = self._messages, self.consumers
        while messages.ready and consumers.waiting:
            if len(consumers.waiting) == 1 and self._drain_run(consumers.waiting[0]):
                continue
            delivery = messages.pop()
            if delivery is None:
                return
            if delivery.expires and delivery.expires <= self.kernel.loop.time():
                self._dead_letter_expired(delivery)
                continue
            channel = consumers.take()
            assert channel is not None, "one was waiting a moment ago"
            self._deliver(channel, delivery)
        messages.schedule_expiry()

    def _drain_run(self, channel: Channel) -> bool:
        """Deliver messages like the first one together; returns whether there are any."""
        if channel.forward_run is None or self._consumer_timeout is not None:
            return False
        deliveries = self._messages.peek_run(min(channel.credit, MAX_RUN_MESSAGES))
        count = len(deliveries)
        if count < 2:
            return False
        run = MessageRun.of([delivery.message for delivery in deliveries])
        channel.credit -= count
        if not channel.forward_run(channel, run, None if channel.settled else deliveries, 0):
            channel.credit += count
            return False
        self._messages.drop_run(deliveries)
        self.delivered += count
        if channel.credit <= 0:
            self.consumers.pause(channel)
        if not channel.settled:
            self.unacknowledged += count
        else:
            self._messages.acknowledge_run(deliveries)
        return True

    def _pull(self, channel: Channel) -> None:
        messages = self._messages
        while messages.ready and (delivery := messages.pop()) is not None:
            if delivery.expires and delivery.expires <= self.kernel.loop.time():
                self._dead_letter_expired(delivery)
                continue
            channel.credit = 0
            self._deliver(channel, delivery)
            break
        messages.schedule_expiry()

    def _deliver(self, channel: Channel, delivery: Delivery) -> None:
        self.delivered += 1
        if delivery.message.spool is None:
            channel.terminal.channel_forward(channel, delivery.message, delivery)
        else:
            self._forward(channel, delivery)
        if not channel.settled:
            self.unacknowledged += 1
            if self._consumer_timeout is not None:
                self._consumer_timeout.on_delivered(channel, delivery)
        elif delivery.offset >= 0:
            self._messages.acknowledge(delivery)

    def _forward(self, channel: Channel, delivery: Delivery) -> None:
        """Send a large message, fragment by fragment."""
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
        """Dead-letter or drop a message."""
        try:
            if not self._messages.load(delivery):
                return
        except OSError:  # it is delivered again
            self._messages.requeue(delivery)
            return
        outcome = self._dead_letters.send(delivery.message, reason)
        if delivery.offset < 0:
            return
        if outcome & LOGGED:  # stored there first: it must be in one log at any time
            self.kernel.committer.after(lambda: self._messages.acknowledge(delivery))
        else:
            self._messages.acknowledge(delivery)

    def _dead_letter_expired(self, delivery: Delivery) -> None:
        self.kernel.metrics.expired += 1
        self._dead_letter(delivery, "expired")

    def used(self) -> None:
        self._expiry.used(in_use=len(self.consumers) > 0)

    def _expire(self) -> None:
        self.vhost.delete_queue(self.name)

    def apply_policy(self, policy: EffectivePolicy) -> None:
        """Deliveries that are unacknowledged keep their timeout, queued messages their TTL."""
        if policy == self.policy:
            return
        self.policy = policy
        self.limits = limits = QueueLimits.of(policy.merged(self.arguments))
        self._dead_letters = DeadLetterPublisher(self.vhost, self.name, limits)
        if limits.consumer_timeout is None:
            if self._consumer_timeout is not None:
                self._consumer_timeout.close()
            self._consumer_timeout = None
        elif self._consumer_timeout is None:
            self._consumer_timeout = ConsumerTimeout(self.kernel, limits.consumer_timeout)
        else:
            self._consumer_timeout.milliseconds = limits.consumer_timeout
        self._expiry.close()
        self._expiry = QueueExpiry(self.kernel, limits.expires, self._expire)
        self.used()
        self._messages.set_ttl(limits.ttl)
        self._in_sync = self._confirms_in_sync()
        self._messages.set_in_sync(self._in_sync)
        if limits.bounded and not limits.reject:
            self._drop_heads()

    def _confirms_in_sync(self) -> bool:
        arguments = self.policy.merged(self.arguments)
        return self.durable and self.owner is None and self.kernel.confirms_in_sync(arguments)

    def bound(self, binding: Binding) -> None:
        """Nothing to do: exchanges hold the bindings."""

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
        self.owner = None  # frees a closed connection

    def _stop(self) -> None:
        self._expiry.close()
        if self._consumer_timeout is not None:
            self._consumer_timeout.close()

    @property
    def ready(self) -> int:
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
    def is_starved(self) -> bool:
        """Whether consumers wait for messages."""
        return not self._messages.ready and bool(self.consumers.waiting)

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
                messages.acknowledge(delivery)
        return purged

    # Browsing; moving messages from the middle.

    def browse(self) -> Iterator[BrowsedMessage]:
        return self._messages.browse()

    @property
    def head(self) -> Message | None:
        return self._messages.head

    def timestamp(self, message_id: str) -> int | None:
        return self._messages.timestamp(message_id)

    def take(self, ids: Iterable[str]) -> list[Delivery]:
        """Ready messages, which are unacknowledged until `settle`."""
        taken = self._messages.take(ids)
        self.unacknowledged += len(taken)
        return taken

    def settle(self, delivery: Delivery, *, put_back: bool) -> None:
        """Acknowledge a message that was taken, or return it to its place."""
        self.unacknowledged -= 1
        if not self.deleted:
            if put_back:
                self._messages.put_back(delivery)
                self._drain()
                if self.limits.bounded and not self.limits.reject:
                    self._drop_heads()
            else:
                self._messages.release(delivery)
                if delivery.offset >= 0:
                    self._messages.acknowledge(delivery)
        if not self.unacknowledged and self._awaiting_handover:
            self._hand_over()

    def describe(self) -> dict[str, Any]:
        return describe_queue(self)


class QueueExpiry:
    """Deletes a queue after it was unused for some time (`x-expires`)."""

    __slots__ = ("_expire", "_kernel", "_milliseconds", "_timer")

    def __init__(
        self, kernel: Kernel, milliseconds: int | None, expire: Callable[[], None]
    ) -> None:
        self._kernel = kernel
        self._milliseconds = milliseconds
        self._expire = expire
        self._timer: asyncio.TimerHandle | None = None

    def used(self, in_use: bool) -> None:
        """Restart the time, or stop it while the queue is in use."""
        if self._milliseconds is None:
            return
        self.close()
        if not in_use:
            when = self._kernel.loop.time() + self._milliseconds / 1000
            self._timer = self._kernel.write_batch.call_at(when, self._expire)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def describe_queue(queue: ClassicQueue) -> dict[str, Any]:
    active = queue.consumers.active if queue.limits.single_active else None
    return {
        "name": queue.name,
        "vhost": queue.vhost.name,
        "type": queue.arguments.get("x-queue-type", queue.type),  # quorum is a classic queue here
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.owner is not None,
        "arguments": queue.arguments,
        **describe_policy(queue.policy),
        "state": "running",
        "messages_ready": queue.ready,
        "messages_unacknowledged": queue.unacknowledged,
        "messages": queue.ready + queue.unacknowledged,
        "message_bytes_ready": queue.ready_bytes,
        "memory": queue.memory,
        "consumers": len(queue.consumers),
        "single_active_consumer_tag": getattr(active, "tag", None),
        "message_stats": {
            "publish": queue.published,
            "deliver_get": queue.delivered,
            "ack": queue.acknowledged,
        },
    }
