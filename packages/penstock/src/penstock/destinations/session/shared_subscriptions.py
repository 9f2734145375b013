"""All the shares of a session: it takes from their queues while it could deliver at once."""

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
from penstock.destinations.session.subscriptions import (
    DEFAULT_SUBSCRIPTION,
    TopicSubscriptionSet,
    effective_subscription,
)

if TYPE_CHECKING:
    from penstock.destinations.message_store import MessageStore
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
        share = self._by_queue.pop(queue, None)
        if share is not None:
            share.close()

    def leave_all(self) -> None:
        for queue in list(self._by_queue):
            self.leave(queue)

    def lost(self, queue: str) -> None:
        """A group's queue is gone."""
        self._by_queue.pop(queue, None)

    def draw(self, taking: bool) -> None:
        """The session can deliver at once, or cannot."""
        for share in list(self._by_queue.values()):
            share.draw(taking)

    def grant(self, route: bytes) -> EffectiveSubscription:
        """What the shares together say of a topic."""
        wanted = TopicSubscriptionSet()
        for share in self._by_queue.values():
            wanted.add(share.subscription)
        grant = wanted.of(route)
        return grant if grant.qos >= 0 else DEFAULT_SUBSCRIPTION

    def hand_back(self, store: MessageStore) -> None:
        """What was taken as a share and never answered is another member's to receive."""
        queues = {id(share.grant): share.queue for share in self._by_queue.values()}
        while queues and store.ready:
            delivery = store.pop()
            if delivery is None:
                return
            if isinstance(delivery, InflightMessage) and delivery.qos == 1:
                queue = queues.get(id(delivery.subscription))
                if queue is not None:
                    queue.push(delivery.message)


# A session's share in a queue that subscribers compete for.
#
# The group's messages wait in a queue like any other. Each member takes from it only while it could
# deliver at once, so that nobody hoards what another could be working on. What it takes moves into
# the session, and is from then on this client's to receive.


class SharedSubscription:
    """The terminal that the group's queue knows."""

    __slots__ = ("_channel", "_session", "grant", "queue", "subscription")

    def __init__(
        self, session: MqttSessionQueue, queue: Queue, subscription: TopicSubscription
    ) -> None:
        self._session = session
        self.queue = queue
        self.subscription = subscription
        self.grant = effective_subscription([subscription])
        self._channel = Channel(self, queue)
        queue.channel_open(self._channel, {})

    def draw(self, taking: bool) -> None:
        """The session can deliver at once, or cannot."""
        credit = UNLIMITED_CREDIT if taking else 0
        if (self._channel.credit > 0) != taking:
            self.queue.channel_request(self._channel, credit)

    def close(self) -> None:
        self.queue.channel_close(self._channel)

    # What the queue asks for.

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        assert delivery is not None, "the channel is not settled"
        message = delivery.message
        if message.spool is not None:
            self._move_large(message, delivery)
            return
        self._session.take(self._aged(message, delivery), self.grant)
        self.queue.channel_confirm(channel, delivery)

    def _aged(self, message: Message, delivery: Delivery) -> Message:
        """A message that has its time has spent some of it waiting here."""
        if not delivery.expires:
            return message
        left = delivery.expires - self._session.kernel.loop.time()
        properties = decode_header(message.header)
        properties.expiration = str(max(0, round(left * 1000)))
        header = encode_header(properties, message.size)
        aged = Message(message.route, header, message.body, message.flags)
        aged.spool = message.spool
        return aged

    def _move_large(self, message: Message, delivery: Delivery) -> None:
        """The body's file is handed over; that the queue would read it out is cut short."""
        assert message.spool is not None
        channel = self._channel
        aged = self._aged(message, delivery)
        moved = Message(aged.route, aged.header, b"", aged.flags)
        moved.spool = self._session.kernel.spools.keep(message.spool)
        self.queue.channel_close(channel)
        self._channel = Channel(self, self.queue)
        self.queue.channel_open(self._channel, {})
        self._session.take(moved, self.grant)
        self.queue.channel_confirm(channel, delivery)
        self._session.draw_shared()

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        """Nothing is posted here."""

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        """The group's queue was deleted."""
        self._session.lost(self.queue.name)
