"""A session: the queue of one subscriber, from its first subscription until it expires.

It decides for itself what a message is granted (`subscriptions.py`). What need not arrive goes
straight to the client, if there is one that can take it. What must arrive becomes a numbered
letter; no more are out than the client allows, the rest wait (`message_store.py`) and survive the
broker if the session does. When the client goes, its unanswered letters wait again with the numbers
they have.

The number of a logged letter is its offset in the log, folded: after a restart the same message has
the same number, and nothing has to be written to know it. What exactly-once delivery needs beyond
that is `inflight.py`; what is drawn as the client takes it are retained messages (`pending.py`) and
its part in shared subscriptions (`shared_subscriptions.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.contract import (
    ACCEPTED,
    EXPIRES,
    LOGGED,
    MAX_PACKET_ID,
    PERSISTENT,
    Binding,
    Channel,
    Delivery,
    EffectiveSubscription,
    Fragment,
    InflightMessage,
    Message,
    Queue,
    TopicSubscription,
)
from penstock.broker.fragments import FragmentSender
from penstock.broker.vhost import directory_name
from penstock.core.errors import NotFound, ResourceLocked
from penstock.destinations.message_store import MessageStore
from penstock.destinations.session.inflight import (
    ExactlyOnceState,
    delivery_qos,
    inflight_message,
    packet_id_of,
    restore_released,
)
from penstock.destinations.session.pending import PendingMessages, RetainedDeliveries
from penstock.destinations.session.shared_subscriptions import SharedSubscriptions
from penstock.destinations.session.subscriptions import (
    DEFAULT_SUBSCRIPTION,
    ContentSubscriptionSet,
    SessionSubscriptions,
)

if TYPE_CHECKING:
    from penstock.broker.vhost import VirtualHost


#: How many messages are delivered between two looks at the clock.
DELIVERIES_PER_SLICE: Final = 64


class MqttSessionQueue:
    kind = "queue"
    auto_delete = False
    owner: object | None = None

    __slots__ = (
        "_channel",
        "_content_subscriptions",
        "_direct_channel",
        "_draining_later",
        "_exactly_once",
        "_number",
        "_pending",
        "_retained",
        "_sending",
        "_shared",
        "_subscriptions",
        "_topic_subscriptions",
        "_window",
        "arguments",
        "deleted",
        "directory",
        "durable",
        "inflight",
        "kernel",
        "name",
        "no_local",
        "own_message",
        "type",
        "vhost",
    )

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
        self.arguments = arguments
        self.kernel = vhost.kernel
        self.inflight: dict[int, InflightMessage] = {}
        self.no_local = False
        self.own_message: Message | None = None
        self.deleted = False
        self._subscriptions = SessionSubscriptions()
        # The same at hand: every message asks.
        self._topic_subscriptions = self._subscriptions.grants
        self._content_subscriptions: ContentSubscriptionSet | None = None
        self._channel: Channel | None = None
        self._direct_channel: Channel | None = (
            None  #: the channel, when a message may go straight to it
        )
        self._window = 0  #: how many letters may be out
        self._number = 0  #: the last number given to a letter that is not logged
        self._pending = PendingMessages(self)
        self._exactly_once: ExactlyOnceState | None = None
        self._retained: RetainedDeliveries | None = None
        self._shared: SharedSubscriptions | None = None
        self._sending: FragmentSender | None = None
        self._draining_later = False  #: the turn was over: it goes on in another
        self.directory = (
            self.kernel.directory / "queues" / directory_name(vhost.name) / directory_name(name)
        )
        if durable and self.directory.exists():
            self._pending.hold()
            for entry in restore_released(self.exactly_once.released):
                self.inflight[entry.packet_id] = entry

    # The contract.

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        if not arguments.get("post"):
            raise ResourceLocked(
                f"queue '{self.name}' in vhost '{self.vhost.name}' is the session of an MQTT "
                "client, which alone reads from it"
            )
        self.vhost.exchanges[""].channel_open(channel, {})

    def attach(self, channel: Channel, window: int) -> None:
        self._channel = channel
        self._window = min(window, MAX_PACKET_ID)
        channel.state = self
        for entry in list(self.inflight.values()):  # the client has them, and may forget
            channel.terminal.channel_forward(channel, entry.message, entry)

    def channel_post(
        self, channel: Channel, fragment: Message | Fragment, receipt: int = 0
    ) -> None:
        """Messages reach a session through an exchange; the default one knows it by its name."""
        self.vhost.exchanges[""].channel_post(channel, fragment, receipt)

    def channel_request(self, channel: Channel, credit: int) -> None:
        channel.credit = credit
        if channel is not self._channel:
            return
        if self._sending is not None:
            if credit > 0:
                self._sending.draw()
        elif credit > 0:
            self.drain()
        else:
            self._update_direct_channel()

    def channel_confirm(self, channel: Channel, delivery: Delivery) -> None:
        assert isinstance(delivery, InflightMessage)
        if delivery.qos == 2 and not delivery.released:
            delivery.released = True
            if self.durable:  # the message itself is not needed any more, but its number is
                self.exactly_once.release(delivery.offset)
            if delivery.offset >= 0:
                self._pending.hold().done(delivery)
            return
        self._finish(delivery)

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        """The client will not have it, and another would be no better."""
        assert isinstance(delivery, InflightMessage)
        self._finish(delivery)
        if self._sending is not None and self._sending.delivery is delivery:
            self._sending.cancel()
            self._sending = None

    def channel_close(self, channel: Channel) -> None:
        if channel.state is not self:
            self.vhost.exchanges[""].channel_close(channel)
            return
        if channel is not self._channel:
            return
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        self._channel = None
        self._update_direct_channel()
        for number, entry in list(self.inflight.items()):
            if not entry.released:
                del self.inflight[number]
                entry.count += 1
                entry.expires = 0.0  # it was begun, and is to be brought to an end
                self._pending.hold().give_back(entry)

    # In.

    def push(self, message: Message) -> int:
        if self._content_subscriptions is not None and self._content_subscriptions.brings(
            message.route
        ):
            grant = self._content_subscriptions.grant(message, own=message is self.own_message)
            return self.take(self._content_subscriptions.addressed(message), grant)
        grants = self._topic_subscriptions
        grant = grants.only or grants.of(message.route)
        channel = self._direct_channel
        if channel is not None and grant.plain and not self.no_local:  # the short way
            if not message.flags & PERSISTENT and grant.qos >= 0 and message.spool is None:
                channel.terminal.channel_forward(channel, message, None)
                return ACCEPTED
        elif self.no_local and message is self.own_message:
            grant = grants.of_own(message.route)
        return self.take(message, grant)

    def take(self, message: Message, grant: EffectiveSubscription) -> int:
        """A message that was granted so much."""
        channel = self._direct_channel
        if message.flags & PERSISTENT and grant.qos > 0:
            return self._send_or_store(message, grant, channel)
        if grant.qos < 0:
            return ACCEPTED
        if channel is not None and message.spool is None:
            entry = None if grant.plain else InflightMessage(message, 0, grant, 0)
            channel.terminal.channel_forward(channel, message, entry)
            return ACCEPTED
        return self._enqueue_best_effort(message)

    def _send_or_store(
        self, message: Message, grant: EffectiveSubscription, channel: Channel | None
    ) -> int:
        """It must arrive: now, if the client can take it."""
        store = self._pending.store or self._pending.hold()
        inflight = self.inflight
        if channel is None or len(inflight) >= self._window or message.spool is not None:
            return self._enqueue(message)
        log = store.log
        number = self._next_number() if log is None else log.log.next_offset % MAX_PACKET_ID + 1
        if number in inflight:
            return self._enqueue(message)
        entry = InflightMessage(message, store.position, grant, delivery_qos(message, grant))
        store.position += 1
        entry.packet_id = number
        if message.flags & EXPIRES:
            entry.expires = store.expiry(message)
        outcome = ACCEPTED
        if log is not None:
            entry.offset = log.append(message)
            log.acks.mark_sent(entry.offset)
            outcome = LOGGED
        inflight[number] = entry
        channel.terminal.channel_forward(channel, message, entry)
        if self._shared and len(inflight) >= self._window:
            self.draw_shared()
        return outcome

    def _enqueue(self, message: Message) -> int:
        outcome = self._pending.add(message)
        self._direct_channel = None
        self.drain()
        return outcome

    def _enqueue_best_effort(self, message: Message) -> int:
        """It need not arrive, but a client that is only slow may still want it."""
        if self._channel is None:
            return ACCEPTED
        best_effort = self._pending.best_effort(message)
        return ACCEPTED if best_effort is None else self._enqueue(best_effort)

    # Out.

    def drain(self) -> None:
        """Deliver what waits while the client can take it, for as long as a turn may take."""
        channel = self._channel
        write_batch = self.kernel.write_batch
        if channel is not None and not self._draining_later:
            count = 0
            while channel.credit > 0 and self._sending is None and self._deliver_next(channel):
                count += 1
                if not count % DELIVERIES_PER_SLICE and write_batch.is_over():
                    self._draining_later = True
                    write_batch.defer(self._drain_on)
                    break
        self._update_direct_channel()

    def _drain_on(self) -> None:
        self._draining_later = False
        if not self.deleted:
            self.drain()

    def _deliver_next(self, channel: Channel) -> bool:
        if len(self.inflight) >= self._window:
            return False
        store = self._pending.store
        if self._retained is not None and not (store is not None and store.returned):
            found = self._retained.next()
            if found is not None:
                return self._deliver_retained(channel, *found)
            self._retained = None
        if store is None or not store.ready:
            return False
        delivery = store.pop()
        return delivery is not None and self._deliver(channel, store, delivery)

    def _deliver(self, channel: Channel, store: MessageStore, delivery: Delivery) -> bool:
        if delivery.expires and delivery.expires <= self.kernel.loop.time():
            self._pending.expired(delivery)
            return True
        entry = delivery if isinstance(delivery, InflightMessage) else self._to_inflight(delivery)
        if entry.qos:
            if not entry.packet_id:
                logged = store.log is not None and entry.offset >= 0
                entry.packet_id = packet_id_of(entry.offset) if logged else self._next_number()
            if entry.packet_id in self.inflight:  # the one that has it is not answered yet
                store.give_back(entry)
                return False
            self.inflight[entry.packet_id] = entry
            store.sent(entry)
        if entry.message.spool is not None and not entry.released:
            self._sending = FragmentSender(self.kernel, channel, entry, self._sent)
            self._sending.open()
        else:
            plain = not entry.qos and entry.subscription.plain and not entry.expires
            channel.terminal.channel_forward(channel, entry.message, None if plain else entry)
        if not entry.qos and entry.offset >= 0:
            store.done(entry)
        return True

    def _to_inflight(self, delivery: Delivery) -> InflightMessage:
        message = delivery.message
        if self._content_subscriptions is not None and self._content_subscriptions.brings(
            message.route
        ):
            return inflight_message(delivery, self._content_subscriptions.grant(message))
        grant = self._topic_subscriptions.of(message.route)
        if grant.qos < 0:
            shares = self._shared
            grant = DEFAULT_SUBSCRIPTION if shares is None else shares.grant(message.route)
        return inflight_message(delivery, grant)

    def _sent(self) -> None:
        """A large message has left whole."""
        self._sending = None
        self.drain()

    def _next_number(self) -> int:
        number = self._number % MAX_PACKET_ID + 1
        while number in self.inflight:
            number = number % MAX_PACKET_ID + 1
        self._number = number
        return number

    def _update_direct_channel(self) -> None:
        """Whether the next message may go straight to the client."""
        channel = self._channel
        behind = self._sending is not None or self._retained is not None or self.message_count
        self._direct_channel = None if channel is None or channel.credit <= 0 or behind else channel
        if self._shared:
            self.draw_shared()

    def _finish(self, entry: InflightMessage) -> None:
        self.inflight.pop(entry.packet_id, None)
        if entry.offset >= 0 and not self.deleted:
            if not entry.released:
                self._pending.hold().done(entry)
            elif self.durable:
                self.exactly_once.complete(entry.offset)
        if self._shared:
            self.draw_shared()

    # What it draws as the client takes it.

    def deliver_retained(self, keys: Iterable[bytes], subscription: TopicSubscription) -> None:
        if self._retained is None:
            self._retained = RetainedDeliveries(self.vhost.retained.get)
        self._retained.add(keys, subscription)
        self.drain()

    def _deliver_retained(
        self, channel: Channel, message: Message, grant: EffectiveSubscription
    ) -> bool:
        store = self._pending.hold()
        entry = InflightMessage(message, store.position, grant, delivery_qos(message, grant))
        if entry.qos and store.paged:  # its record would be read back with those around it
            store.add(message)
            return True
        store.position += 1
        if message.flags & EXPIRES:
            entry.expires = store.expiry(message)
        if entry.qos and store.log is not None:
            entry.offset = store.log.append(message)
        return self._deliver(channel, store, entry)

    def join(self, queue: Queue, subscription: TopicSubscription) -> None:
        if self._shared is None:
            self._shared = SharedSubscriptions(self)
        self._shared.join(queue, subscription)
        self.draw_shared()

    def leave(self, queue: str) -> None:
        if self._shared is not None:
            self._shared.leave(queue)

    def lost(self, queue: str) -> None:
        if self._shared is not None:
            self._shared.lost(queue)

    def draw_shared(self) -> None:
        if self._shared is not None:
            self._shared.draw(
                self._direct_channel is not None and len(self.inflight) < self._window
            )

    # Exactly once.

    @property
    def exactly_once(self) -> ExactlyOnceState:
        if self._exactly_once is None:
            path = self.directory / "once" if self.durable else None
            self._exactly_once = ExactlyOnceState(self.kernel, path)
        return self._exactly_once

    @property
    def received(self) -> set[int]:
        return self.exactly_once.received

    def add_received(self, packet_id: int) -> None:
        self.exactly_once.add_received(packet_id)

    def release_received(self, packet_id: int) -> None:
        self.exactly_once.release_received(packet_id)

    # Life.

    @property
    def subscription_count(self) -> int:
        return len(self._subscriptions) + len(self._shared or ())

    def subscription(self, pattern: str) -> TopicSubscription | None:
        return self._subscriptions.get(pattern)

    def bound(self, binding: Binding) -> None:
        self._subscriptions.add(binding)
        self._changed()

    def unbound(self, binding: Binding) -> None:
        self._subscriptions.remove(binding)
        self._changed()

    def _changed(self) -> None:
        self._content_subscriptions = self._subscriptions.contents
        self.no_local = self._subscriptions.no_local

    def used(self) -> None:
        """How long a session may go unused is its client's to say."""

    def close(self) -> None:
        self._pending.close()
        if self._exactly_once is not None:
            self._exactly_once.close()

    def delete(self) -> None:
        self.deleted = True
        channel = self._channel
        if channel is not None:
            self.channel_close(channel)
            why = NotFound(f"session '{self.name}' in vhost '{self.vhost.name}' was deleted")
            channel.terminal.channel_failure(channel, 0, why)
        if self._shared is not None:
            if self._pending.store is not None:
                self._shared.hand_back(self._pending.store)
            self._shared.leave_all()
        self.inflight.clear()
        if self._exactly_once is not None:
            self._exactly_once.delete()
        self._pending.delete()
        if self.durable:
            shutil.rmtree(self.directory, ignore_errors=True)

    # Management.

    @property
    def message_count(self) -> int:
        return self._pending.count

    @property
    def consumer_count(self) -> int:
        return int(self._channel is not None)

    @property
    def dropped(self) -> int:
        """Messages there was no room for."""
        return self._pending.dropped

    def purge(self) -> int:
        return self._pending.purge()

    def describe(self) -> dict[str, Any]:
        return describe_session(self, self._pending)


# A session as management shows it: a queue that is its client's alone.


def describe_session(session: MqttSessionQueue, waiting: PendingMessages) -> dict[str, Any]:
    ready, out = waiting.count, len(session.inflight)
    return {
        "name": session.name,
        "vhost": session.vhost.name,
        "type": session.type,
        "durable": session.durable,
        "auto_delete": False,
        "exclusive": True,
        "arguments": session.arguments,
        "state": "running",
        "messages_ready": ready,
        "messages_unacknowledged": out,
        "messages": ready + out,
        "message_bytes_ready": waiting.bytes,
        "memory": waiting.memory,
        "consumers": session.consumer_count,
        "single_active_consumer_tag": None,
    }
