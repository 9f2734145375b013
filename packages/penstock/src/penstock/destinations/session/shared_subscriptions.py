"""The shared subscriptions of a session.

Messages of a group wait in an ordinary queue, which its members consume. A member takes messages
only while it can deliver them at once, so that none is hoarded. A message that it takes moves to
its session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.contract import (
    UNLIMITED_CREDIT,
    Channel,
    Delivery,
    EffectiveSubscription,
    Fragment,
    InflightMessage,
    Message,
    Queue,
    TopicSubscription,
)
from penstock.core.basic_properties import decode_header, encode_header
from penstock.destinations.message_store import MessageStore
from penstock.destinations.session.subscriptions import (
    DEFAULT_SUBSCRIPTION,
    TopicSubscriptionSet,
    effective_subscription,
)

if TYPE_CHECKING:
    from penstock.destinations.session.session import MqttSessionQueue


class SharedSubscriptions:
    __slots__ = ("_by_queue", "_session")

    def __init__(self, session: MqttSessionQueue) -> None:
        self._session = session
        self._by_queue: dict[str, SharedSubscription] = {}

    def __len__(self) -> int:
        return len(self._by_queue)

    def join(self, queue: Queue, subscription: TopicSubscription) -> None:
        self.leave(queue.name)
        self._by_queue[queue.name] = SharedSubscription(self._session, queue, subscription)

    def leave(self, queue: str) -> None:
        shared = self._by_queue.pop(queue, None)
        if shared is not None:
            shared.close()

    def leave_all(self) -> None:
        for queue in list(self._by_queue):
            self.leave(queue)

    def lost(self, queue: str) -> None:
        """The queue of a group was deleted."""
        self._by_queue.pop(queue, None)

    def draw(self, taking: bool) -> None:
        for shared in list(self._by_queue.values()):
            shared.draw(taking)

    def effective(self, route: bytes) -> EffectiveSubscription:
        """The effective subscription of all shared subscriptions."""
        wanted = TopicSubscriptionSet()
        for shared in self._by_queue.values():
            wanted.add(shared.subscription)
        grant = wanted.of(route)
        return grant if grant.qos >= 0 else DEFAULT_SUBSCRIPTION

    def return_unacknowledged(self, store: MessageStore) -> None:
        """Return unacknowledged QoS 1 messages to their groups."""
        queues = {
            id(shared.effective_subscription): shared.queue for shared in self._by_queue.values()
        }
        while queues and store.ready:
            delivery = store.pop()
            if delivery is None:
                return
            if isinstance(delivery, InflightMessage) and delivery.qos == 1:
                queue = queues.get(id(delivery.subscription))
                if queue is not None:
                    queue.push(delivery.message)


class SharedSubscription:
    """A session's part in a shared subscription: a consumer of the group's queue."""

    __slots__ = ("_channel", "_session", "effective_subscription", "queue", "subscription")

    def __init__(
        self, session: MqttSessionQueue, queue: Queue, subscription: TopicSubscription
    ) -> None:
        self._session = session
        self.queue = queue
        self.subscription = subscription
        self.effective_subscription = effective_subscription([subscription])
        self._channel = Channel(self, queue)
        queue.channel_open(self._channel, {})

    def draw(self, taking: bool) -> None:
        credit = UNLIMITED_CREDIT if taking else 0
        if (self._channel.credit > 0) != taking:
            self.queue.channel_request(self._channel, credit)

    def close(self) -> None:
        self.queue.channel_close(self._channel)

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        assert delivery is not None, "the channel is not settled"
        message = delivery.message
        if message.spool is not None:
            self._move_large(message, delivery)
            return
        self._session.deliver(
            self._with_remaining_ttl(message, delivery), self.effective_subscription
        )
        self.queue.channel_confirm(channel, delivery)

    def _with_remaining_ttl(self, message: Message, delivery: Delivery) -> Message:
        """The message with its remaining time to live."""
        if not delivery.expires:
            return message
        left = delivery.expires - self._session.kernel.loop.time()
        properties = decode_header(message.header)
        properties.expiration = str(max(0, round(left * 1000)))
        header = encode_header(properties, message.size)
        updated = Message(message.route, header, message.body, message.flags)
        updated.spool = message.spool
        return updated

    def _move_large(self, message: Message, delivery: Delivery) -> None:
        """Take over the body's file instead of reading it fragment by fragment."""
        assert message.spool is not None
        channel = self._channel
        updated = self._with_remaining_ttl(message, delivery)
        moved = Message(updated.route, updated.header, b"", updated.flags)
        moved.spool = self._session.kernel.spools.relink(message.spool)
        self.queue.channel_close(channel)
        self._channel = Channel(self, self.queue)
        self.queue.channel_open(self._channel, {})
        self._session.deliver(moved, self.effective_subscription)
        self.queue.channel_confirm(channel, delivery)
        self._session.draw_shared()

    def channel_confirm(self, channel: Channel, receipt: int) -> None: ...

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        """The queue of the group was deleted."""
        self._session.lost(self.queue.name)
