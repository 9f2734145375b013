"""An MQTT session: the queue of one client, from its first subscription until it expires.

The session computes the granted QoS of each message from its subscriptions. QoS 0 messages go to
the client at once, if it is connected and reads. QoS 1 and 2 messages become in-flight messages
with a packet id, up to the client's receive maximum; the rest wait in a `MessageStore`, and survive
the broker if the session is durable. On disconnect, in-flight messages wait again with their packet
ids.

The packet id of a logged message is its offset in the log modulo 65535: it is the same after a
restart without being written. Exactly-once state is in `inflight.py`, pending and retained messages
in `pending_messages.py`, shared subscriptions in `shared_subscriptions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from penstock.broker.contract import (
    ACCEPTED,
    EXACTLY_ONCE,
    EXPIRES,
    FROM_RETAINED,
    MAX_PACKET_ID,
    PERSISTENT,
    REJECTED,
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
from penstock.broker.log.observer import remove_tree
from penstock.broker.message_run import MAX_RUN_MESSAGES, MessageRun
from penstock.broker.policies import NO_POLICY, EffectivePolicy
from penstock.broker.vhost import VirtualHost, directory_name
from penstock.core.errors import NotFound, ResourceLocked
from penstock.destinations.message_store import BrowsedMessage, MessageStore
from penstock.destinations.session.inflight import (
    ExactlyOnceState,
    delivery_qos,
    inflight_message,
    packet_id_of,
    restore_released,
)
from penstock.destinations.session.pending_messages import PastMessages, PendingMessages
from penstock.destinations.session.shared_subscriptions import SharedSubscriptions
from penstock.destinations.session.subscriptions import (
    DEFAULT_SUBSCRIPTION,
    ContentSubscriptionSet,
    SessionSubscriptions,
)

#: Messages with these flags need an `InflightMessage` each.
TRACKED: Final = EXPIRES | EXACTLY_ONCE | FROM_RETAINED
#: Deliveries between two checks of the clock.
DELIVERIES_PER_SLICE: Final = 64


class MqttSessionQueue:
    kind = "queue"
    policy = NO_POLICY
    auto_delete = False
    owner: object | None = None

    __slots__ = (
        "_channel",
        "_content_subscriptions",
        "_direct_channel",
        "_draining_later",
        "_exactly_once",
        "_in_sync",
        "_last_packet_id",
        "_past",
        "_pending",
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
        self._in_sync = durable and self.kernel.confirms_in_sync({})
        self.inflight: dict[int, InflightMessage | Message] = {}
        self.no_local = False
        self.own_message: Message | None = None
        self.deleted = False
        self._subscriptions = SessionSubscriptions()
        # A shortcut: every message needs it.
        self._topic_subscriptions = self._subscriptions.topics
        self._content_subscriptions: ContentSubscriptionSet | None = None
        self._channel: Channel | None = None
        self._direct_channel: Channel | None = None  #: set while messages need not wait
        self._window = 0  #: the limit of in-flight messages
        self._last_packet_id = 0  #: the last packet id of a message that is not logged
        self._pending = PendingMessages(self)
        self._exactly_once: ExactlyOnceState | None = None
        self._past: PastMessages | None = None
        self._shared: SharedSubscriptions | None = None
        self._sending: FragmentSender | None = None
        self._draining_later = False  #: continues in another write batch
        self.directory = (
            self.kernel.directory / "queues" / directory_name(vhost.name) / directory_name(name)
        )
        if durable and self.directory.exists():
            self._pending.open_store()
            for entry in restore_released(self.exactly_once.released):
                self.inflight[entry.packet_id] = entry

    # The contract.

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        if not arguments.get("post"):
            raise ResourceLocked(
                f"queue '{self.name}' in vhost '{self.vhost.name}' is the session of an MQTT "
                "client; only that client may consume from it"
            )
        self.vhost.exchanges[""].channel_open(channel, {})

    def attach(self, channel: Channel, window: int) -> None:
        self._channel = channel
        self._window = min(window, MAX_PACKET_ID)
        channel.state = self
        for entry in list(self.inflight.values()):  # redelivered
            if isinstance(entry, InflightMessage):
                channel.terminal.channel_forward(channel, entry.message, entry)

    def channel_post(
        self, channel: Channel, fragment: Message | Fragment, receipt: int = 0
    ) -> None:
        """Messages reach a session through an exchange, here the default one."""
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
            if self.durable:  # the message is acknowledged, its packet id is not
                self.exactly_once.release(delivery.offset)
            if delivery.offset >= 0:
                self._pending.open_store().acknowledge(delivery)
            return
        self._finish(delivery)

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        """The client refused it: it is not redelivered."""
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
        self._track_runs()
        for packet_id, entry in list(self.inflight.items()):
            if isinstance(entry, InflightMessage) and not entry.released:
                del self.inflight[packet_id]
                entry.count += 1
                entry.expires = 0.0  # an in-flight message does not expire
                self._pending.open_store().requeue(entry)

    def push(self, message: Message) -> int:
        if self._content_subscriptions is not None and self._content_subscriptions.routes_from(
            message.route
        ):
            subscription = self._content_subscriptions.effective(
                message, own=message is self.own_message
            )
            return self.deliver(self._content_subscriptions.with_class_route(message), subscription)
        topics = self._topic_subscriptions
        subscription = topics.only or topics.of(message.route)
        channel = self._direct_channel
        if channel is not None and subscription.plain and not self.no_local:  # the fast path
            if not message.flags & PERSISTENT and subscription.qos >= 0 and message.spool is None:
                channel.terminal.channel_forward(channel, message, None)
                return ACCEPTED
        elif self.no_local and message is self.own_message:
            subscription = topics.of_own(message.route)
        return self.deliver(message, subscription)

    @property
    def takes_runs(self) -> bool:
        return not self._in_sync

    def push_run(self, run: MessageRun) -> int:
        topics = self._topic_subscriptions
        subscription = topics.only or topics.of(run.route)
        channel = self._direct_channel
        if not self.no_local and self._content_subscriptions is None:
            must_arrive = run.flags & PERSISTENT and subscription.qos > 0
            if channel is None and must_arrive:
                return self._enqueue_run(run)
            if (
                channel is not None
                and channel.forward_run is not None
                and subscription.plain
                and subscription.qos >= 0
                and not run.flags & TRACKED
            ):
                if not must_arrive:
                    if channel.forward_run(channel, run, None, 0):
                        return ACCEPTED
                elif not self.durable and self._shared is None:
                    if self._send_run(channel, run):
                        return ACCEPTED
                    # Its packet ids are in use. Those of the session continue far from them, so
                    # that they are not in the way of the next runs.
                    self._last_packet_id = (run.packet_id + MAX_PACKET_ID // 2) % MAX_PACKET_ID
                    return self._enqueue_run(run)
        outcome = ACCEPTED
        for message in run.messages:
            outcome |= self.push(message)
        return outcome

    def _enqueue_run(self, run: MessageRun) -> int:
        outcome = ACCEPTED
        for message in run.messages:
            outcome |= self._pending.add(message)
        self._direct_channel = None
        self.drain()
        return outcome

    def _send_run(self, channel: Channel, run: MessageRun) -> bool:
        """Send a run at QoS 1, if the client accepts all of it and the packet ids are free."""
        inflight, messages = self.inflight, run.messages
        packet_ids = range(run.packet_id, run.packet_id + len(messages))
        if len(inflight) + len(messages) > self._window or not inflight.keys().isdisjoint(
            packet_ids
        ):
            return False
        assert channel.forward_run is not None
        if not channel.forward_run(channel, run, None, run.packet_id):
            return False
        inflight.update(zip(packet_ids, messages, strict=True))
        return True

    def _track_runs(self) -> None:
        """The client has disconnected: messages of runs become deliveries, in their order."""
        inflight = self.inflight
        if all(isinstance(entry, InflightMessage) for entry in inflight.values()):
            return
        # All of them are older than what waits.
        position = self._pending.open_store().first_position - len(inflight)
        for packet_id, entry in inflight.items():
            if isinstance(entry, Message):
                subscription = self._topic_subscriptions.of(entry.route)
                entry = inflight[packet_id] = InflightMessage(entry, 0, subscription, 1)
                entry.packet_id = packet_id
            entry.position = position
            position += 1

    def deliver(self, message: Message, subscription: EffectiveSubscription) -> int:
        """Send or queue a message with its effective subscription."""
        channel = self._direct_channel
        if message.flags & PERSISTENT and subscription.qos > 0:
            return self._send_or_store(message, subscription, channel)
        if subscription.qos < 0:
            return ACCEPTED
        if channel is not None and message.spool is None:
            entry = None if subscription.plain else InflightMessage(message, 0, subscription, 0)
            channel.terminal.channel_forward(channel, message, entry)
            return ACCEPTED
        return self._enqueue_best_effort(message)

    def _send_or_store(
        self, message: Message, subscription: EffectiveSubscription, channel: Channel | None
    ) -> int:
        """A QoS 1 or 2 message: send it now if the client accepts it."""
        if self._in_sync and self.kernel.committer.refuses:
            return REJECTED
        store = self._pending.store or self._pending.open_store()
        inflight = self.inflight
        if channel is None or len(inflight) >= self._window or message.spool is not None:
            return self._enqueue(message)
        log = store.log
        packet_id = (
            self._next_packet_id() if log is None else log.log.next_offset % MAX_PACKET_ID + 1
        )
        if packet_id in inflight:
            return self._enqueue(message)
        entry = InflightMessage(
            message, store.position, subscription, delivery_qos(message, subscription)
        )
        store.position += 1
        entry.packet_id = packet_id
        if message.flags & EXPIRES:
            entry.expires = store.expiry(message)
        outcome = ACCEPTED
        if log is not None:
            entry.offset = log.append(message)
            log.acks.mark_sent(entry.offset)
            outcome = store.logged
        inflight[packet_id] = entry
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
        """A QoS 0 message for a slow client: queue it if there is space."""
        if self._channel is None:
            return ACCEPTED
        best_effort = self._pending.best_effort(message)
        return ACCEPTED if best_effort is None else self._enqueue(best_effort)

    def drain(self) -> None:
        """Deliver pending messages while the client accepts them and the batch lasts."""
        channel = self._channel
        write_batch = self.kernel.write_batch
        if channel is not None and not self._draining_later:
            count = 0
            while channel.credit > 0 and self._sending is None:
                is_run = self._deliver_run(channel) or self._deliver_past_run(channel)
                if not is_run and not self._deliver_next(channel):
                    break
                count += 1
                if (is_run or not count % DELIVERIES_PER_SLICE) and write_batch.is_over():
                    self._draining_later = True
                    write_batch.defer(self._continue_drain)
                    break
        self._update_direct_channel()

    def _continue_drain(self) -> None:
        self._draining_later = False
        if not self.deleted:
            self.drain()

    def _deliver_run(self, channel: Channel) -> bool:
        """Deliver pending messages like the first one together, as `push_run` does."""
        store = self._pending.store
        room = self._window - len(self.inflight)
        if store is None or store.ready < 2 or room < 2 or self.durable:
            return False
        if channel.forward_run is None or self._past is not None or self._shared is not None:
            return False
        deliveries = store.peek_run(min(room, MAX_RUN_MESSAGES))
        if len(deliveries) < 2 or self._content_subscriptions is not None or self.no_local:
            return False
        messages = [delivery.message for delivery in deliveries]
        route, flags = messages[0].route, messages[0].flags
        subscription = self._topic_subscriptions.of(route)
        if not subscription.plain or subscription.qos < 1 or flags & TRACKED:
            return False
        if not flags & PERSISTENT or any(delivery.offset >= 0 for delivery in deliveries):
            return False  # a paged one is acknowledged with its record
        run = MessageRun.of(messages)
        run.number(self._last_packet_id)
        if not self._send_run(channel, run):
            return False
        self._last_packet_id = run.packet_id + len(messages) - 1
        store.drop_run(deliveries)
        return True

    def _deliver_past_run(self, channel: Channel) -> bool:
        """Deliver past messages at QoS 0 in a row; returns whether there were any."""
        found = None if self._past is None else self._past.first
        store = self._pending.store
        if found is None or len(self.inflight) >= self._window:
            return False
        messages, subscription = found
        if subscription.qos or not subscription.plain or (store is not None and store.has_requeued):
            return False
        forward = channel.terminal.channel_forward
        count = 0
        for message in islice(messages, DELIVERIES_PER_SLICE):
            count += 1
            if message is None:
                continue
            if message.flags & EXPIRES or message.spool is not None:
                self._deliver_past(channel, message, subscription)
            else:
                forward(channel, message, None)
            if channel.credit <= 0 or self._sending is not None:
                break
        return count > 0

    def _deliver_next(self, channel: Channel) -> bool:
        if len(self.inflight) >= self._window:
            return False
        store = self._pending.store
        if self._past is not None and not (store is not None and store.has_requeued):
            found = self._past.next()
            if found is not None:
                message, subscription = found
                return message is None or self._deliver_past(channel, message, subscription)
            self._past = None
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
                entry.packet_id = packet_id_of(entry.offset) if logged else self._next_packet_id()
            if entry.packet_id in self.inflight:  # its packet id is still in use
                store.requeue(entry)
                return False
            self.inflight[entry.packet_id] = entry
            store.mark_sent(entry)
        if entry.message.spool is not None and not entry.released:
            self._sending = FragmentSender(self.kernel, channel, entry, self._large_sent)
            self._sending.open()
        else:
            plain = not entry.qos and entry.subscription.plain and not entry.expires
            channel.terminal.channel_forward(channel, entry.message, None if plain else entry)
        if not entry.qos and entry.offset >= 0:
            store.acknowledge(entry)
        return True

    def _to_inflight(self, delivery: Delivery) -> InflightMessage:
        message = delivery.message
        if self._content_subscriptions is not None and self._content_subscriptions.routes_from(
            message.route
        ):
            return inflight_message(delivery, self._content_subscriptions.effective(message))
        subscription = self._topic_subscriptions.of(message.route)
        if subscription.qos < 0:
            shares = self._shared
            subscription = (
                DEFAULT_SUBSCRIPTION if shares is None else shares.effective(message.route)
            )
        return inflight_message(delivery, subscription)

    def _large_sent(self) -> None:
        self._sending = None
        self.drain()

    def _next_packet_id(self) -> int:
        packet_id = self._last_packet_id % MAX_PACKET_ID + 1
        while packet_id in self.inflight:
            packet_id = packet_id % MAX_PACKET_ID + 1
        self._last_packet_id = packet_id
        return packet_id

    def _update_direct_channel(self) -> None:
        """Determine whether the next message need not wait."""
        channel = self._channel
        behind = self._sending is not None or self._past is not None or self.message_count
        self._direct_channel = None if channel is None or channel.credit <= 0 or behind else channel
        if self._shared:
            self.draw_shared()

    def _finish(self, entry: InflightMessage) -> None:
        self.inflight.pop(entry.packet_id, None)
        if entry.offset >= 0 and not self.deleted:
            if not entry.released:
                self._pending.open_store().acknowledge(entry)
            elif self.durable:
                self.exactly_once.complete(entry.offset)
        if self._shared:
            self.draw_shared()

    def deliver_past(
        self, messages: Iterator[Message | None], subscription: TopicSubscription
    ) -> None:
        if self._past is None:
            self._past = PastMessages()
        self._past.add(messages, subscription)
        self.drain()

    def _deliver_past(
        self, channel: Channel, message: Message, subscription: EffectiveSubscription
    ) -> bool:
        qos = delivery_qos(message, subscription)
        if not qos and subscription.plain and not message.flags & EXPIRES and message.spool is None:
            channel.terminal.channel_forward(channel, message, None)
            return True
        store = self._pending.open_store()
        entry = InflightMessage(message, store.position, subscription, qos)
        if entry.qos and store.paged:  # its record would be read back with paged ones
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

    def when_stored(self, callback: Callable[[], None], failed: Callable[[OSError], None]) -> None:
        if not self.durable:
            callback()
            return
        self.exactly_once.hasten()
        store = self._pending.store
        if store is not None and store.log is not None:
            store.log.acks.hasten()
        self.kernel.committer.after(callback, failed)

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

    def apply_policy(self, policy: EffectivePolicy) -> None:
        """The broker's settings of MQTT apply, not policies."""

    def used(self) -> None:
        """Nothing to do: the terminal expires sessions."""

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
                self._shared.return_unacknowledged(self._pending.store)
            self._shared.leave_all()
        self.inflight.clear()
        if self._exactly_once is not None:
            self._exactly_once.delete()
        self._pending.delete()
        if self.durable:
            remove_tree(self.directory, self.kernel.committer.observer)

    @property
    def message_count(self) -> int:
        return self._pending.count

    @property
    def consumer_count(self) -> int:
        return int(self._channel is not None)

    @property
    def dropped(self) -> int:
        """Messages dropped because the queue was full."""
        return self._pending.dropped

    def purge(self) -> int:
        return self._pending.purge()

    def browse(self) -> Iterator[BrowsedMessage]:
        """Messages that wait for the client; in-flight ones are not among them."""
        store = self._pending.store
        return iter(()) if store is None else store.browse()

    def timestamp(self, message_id: str) -> int | None:
        store = self._pending.store
        return None if store is None else store.timestamp(message_id)

    def describe(self) -> dict[str, Any]:
        return describe_session(self, self._pending)


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
