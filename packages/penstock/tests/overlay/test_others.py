"""Links over TLS, and what AMQP clients of one broker get from those of another."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from penstock.broker.contract import Message, Queue
from penstock.core.basic_properties import BasicProperties, encode_header, encode_route
from penstock.core.config import TlsSettings
from penstock.server import Broker
from penstock.wire.padres.envelope import EnvelopeKind
from tests.client.test_tls import write_certificate
from tests.overlay.house import House, becomes, holds, pair, router_of

CHEAP = "[class,eq,stock],[price,<,50]"


async def test_a_link_may_be_encrypted(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    tls = TlsSettings(certificate=certificate, key=key, authority=certificate)
    async with AsyncExitStack() as stack:
        house = House(tmp_path, stack, tls)
        first, second = await pair(house)
        assert first.addresses[0].startswith("padress://")
        publisher, subscriber = await house.talker(first, "p"), await house.talker(second, "s")
        await publisher.say(EnvelopeKind.ADVERTISE, "[class,eq,stock],[price,>,0]")
        await subscriber.say(EnvelopeKind.SUBSCRIBE, CHEAP)
        await becomes(lambda: holds(first, "B2", CHEAP))
        await publisher.say(EnvelopeKind.PUBLISH, "[class,stock],[price,45]")
        await subscriber.until(1)


async def test_what_is_published_to_the_exchange_of_one_reaches_bindings_of_another(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        first, second = await pair(House(tmp_path, stack))
        queue = await asked_by_the_other(first, second)
        publish(first, price=45)
        publish(first, price=61)
        await becomes(lambda: queue.message_count == 1)


async def test_a_time_that_cannot_be_does_not_hold_up_what_comes_behind(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        house = House(tmp_path, stack)
        first, second = await pair(house)
        queue = await asked_by_the_other(first, second)
        publisher = await house.talker(first, "p")
        await publisher.say(EnvelopeKind.ADVERTISE, "[class,eq,stock],[price,>,0]")
        publish(first, timestamp=(1 << 64) - 1, price=41)
        await publisher.say(EnvelopeKind.PUBLISH, "[class,stock],[price,42]", time=1e300)
        publish(first, price=43)
        await becomes(lambda: queue.message_count == 3)


async def asked_by_the_other(first: Broker, second: Broker) -> Queue:
    """A queue of the second broker's that wants what is cheap, and the first knows of it."""
    host = second.vhosts["/"]
    queue = host.declare_queue("cheap", durable=True)
    host.bind("content", queue, "", {"x-subscription": CHEAP})
    second.kernel.write_batch.flush()
    publish(first, price=60)  # seen, and so advertised
    await becomes(
        lambda: any(
            key[1] == "B2" and price(first, key[0]) for key in router_of(first).tables.subscriptions
        )
    )
    return queue


def price(broker: Broker, identity: str) -> bool:
    entry = router_of(broker).tables.subscriptions[identity, "B2"]
    return any(one.attribute == "price" for one in entry.message.predicates)


def publish(broker: Broker, timestamp: int | None = None, **headers: object) -> None:
    """As an AMQP client does: attributes are headers."""
    said = {"class": "stock", **headers}
    properties = BasicProperties(headers=said, delivery_mode=2, timestamp=timestamp)
    message = Message(encode_route("content", ""), encode_header(properties, 2), b"{}", 1)
    broker.vhosts["/"].exchanges["content"].accept(message)
    broker.kernel.write_batch.flush()
