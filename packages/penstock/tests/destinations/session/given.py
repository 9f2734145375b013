"""What tests of sessions stand on: messages of every quality, and a session with its subscriber."""

from __future__ import annotations

from typing import Any

from penstock.broker.contract import (
    EXACTLY_ONCE,
    PERSISTENT,
    RETAIN,
    UNLIMITED_CREDIT,
    Channel,
    Delivery,
    InflightMessage,
    Message,
    TopicSubscription,
)
from penstock.broker.message_run import MessageRun
from penstock.destinations.session.subscriptions import DEFAULT_SUBSCRIPTION
from tests.doubles import Listener, Stand, message

FLAGS = (0, PERSISTENT, PERSISTENT | EXACTLY_ONCE)


def publication(
    body: bytes = b"hello",
    key: str = "a",
    qos: int = 1,
    *,
    expiry: int | None = None,
    retain: bool = False,
) -> Message:
    """As a client's publication reaches an exchange."""
    told: dict[str, Any] = {} if expiry is None else {"expiration": str(expiry * 1000)}
    made = message(body, key, "amq.topic", delivery_mode=2 if qos else 1, **told)
    made.flags |= FLAGS[qos] | (RETAIN if retain else 0)
    return made


def new_session(stand: Stand, name: str = "c", *, durable: bool = True) -> Any:
    return stand.vhost.declare_queue(
        f"mqtt-subscription-{name}", durable=durable, arguments={"x-queue-type": "mqtt"}
    )


def found_session(stand: Stand, name: str = "c") -> Any:
    return stand.vhost.queues[f"mqtt-subscription-{name}"]


def subscribe(stand: Stand, session: Any, pattern: str = "a", qos: int = 1, **options: Any) -> None:
    wanted = TopicSubscription(pattern, qos, **options)
    stand.vhost.bind("amq.topic", session, pattern, wanted.arguments)


def publish(stand: Stand, *messages: Message) -> int:
    """To the exchange; what became of them."""
    outcome = 0
    for one in messages:
        outcome |= stand.vhost.exchange("amq.topic").accept(one)
    return outcome


def publish_run(stand: Stand, session: Any, *messages: Message) -> int:
    """Messages with the same key and flags, as a client's read has them."""
    run = MessageRun.of(list(messages))
    run.number(stand.kernel.metrics.published)
    stand.kernel.metrics.published += len(messages)
    return int(session.push_run(run))


class Subscriber(Channel):
    """A session's client, connected."""

    __slots__ = ("ear",)

    def __init__(self, session: Any, window: int = 10, credit: int = UNLIMITED_CREDIT) -> None:
        self.ear = Listener()
        super().__init__(self.ear, session)
        self.forward_run = self.note_run
        session.attach(self, window)
        if credit:
            self.request(credit)

    def request(self, credit: int = UNLIMITED_CREDIT) -> None:
        self.driver.channel_request(self, credit)

    def note_run(
        self, channel: Channel, run: MessageRun, deliveries: list[Delivery] | None, packet_id: int
    ) -> bool:
        """At QoS 1 as deliveries, though the session has none."""
        for number, one in enumerate(run.messages, packet_id):
            entry = None
            if packet_id:
                entry = InflightMessage(one, 0, DEFAULT_SUBSCRIPTION, 1)
                entry.packet_id = number
            self.ear.channel_forward(channel, one, entry)
        return True

    def confirm(self, delivery: Delivery) -> None:
        self.driver.channel_confirm(self, delivery)

    def refuse(self, delivery: Delivery) -> None:
        self.driver.channel_failure(self, delivery, False)

    def close(self) -> None:
        self.driver.channel_close(self)

    @property
    def inflight(self) -> list[InflightMessage]:
        """All that was delivered to be answered, in order; what was released comes as itself."""
        return [
            one for one in self.ear.deliveries if isinstance(one, InflightMessage) and one.packet_id
        ]

    @property
    def numbers(self) -> list[int]:
        return [entry.packet_id for entry in self.inflight]

    def answer(self, entry: Delivery) -> None:
        """All there is to say to it, and that there is room for more."""
        assert isinstance(entry, InflightMessage)
        if entry.qos == 2 and not entry.released:
            self.confirm(entry)
        self.confirm(entry)
        self.request()
