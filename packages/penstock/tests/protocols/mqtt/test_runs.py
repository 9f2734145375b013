"""Publications that come in a row: they are handled together, and nobody can tell."""

from __future__ import annotations

import pytest

from penstock.wire.mqtt.fields import PUBACK
from penstock.wire.mqtt.packets import encode_pubacks
from tests.protocols.mqtt.broker import Caller, MqttTestBroker, published

PAYLOADS = [b"%d" % n * n for n in range(1, 60)]
ANSWERS = [(number, 0) for number in range(1, 61)]


def say_run(writer: Caller, qos: int, topic: str = "a") -> None:
    """The first alone, so that the topic is known; then all others in one read."""
    numbers = range(1, 60) if qos else [0] * 59
    writer.publish(topic, b"first", qos=qos, number=60 if qos else 0)
    writer.say(
        *(
            published(writer.version, topic, payload, qos, number)
            for number, payload in zip(numbers, PAYLOADS, strict=True)
        )
    )


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("granted", [0, 1])
@pytest.mark.parametrize("qos", [0, 1])
async def test_each_subscriber_gets_them_in_order(
    house: MqttTestBroker, version: int, granted: int, qos: int
) -> None:
    readers = [await house.connected(f"r{n}", version=v) for n, v in enumerate((4, 5, 4))]
    for reader in readers:
        reader.subscribe("a", qos=granted)
    writer = await house.connected("writer", version=version)
    say_run(writer, qos)
    for reader in readers:
        assert reader.payloads == [b"first", *PAYLOADS]
        numbers = {message.number for message in reader.got}
        assert len(numbers) == (60 if qos and granted else 1)
    assert sorted(writer.acknowledgements(PUBACK)) == (ANSWERS if qos else [])


async def test_acknowledgements_in_one_read_settle_them(house: MqttTestBroker) -> None:
    reader = await house.connected("reader", version=4)
    reader.subscribe("a", qos=1)
    say_run(await house.connected("writer", version=4), 1)
    session = house.session("reader")
    assert len(session.inflight) == 60
    reader.say(encode_pubacks([message.number for message in reader.got]))
    assert not session.inflight


async def test_one_that_waits_for_the_disk_is_not_overtaken(house: MqttTestBroker) -> None:
    queue = house.stand.queue(durable=True)
    house.vhost.bind("amq.topic", queue, "disk")
    reader = await house.connected("reader", version=4)
    reader.subscribe("a", qos=1)
    writer = await house.connected("writer", version=4)
    say_run(writer, 1)
    before = len(writer.acknowledgements(PUBACK))
    assert before == 60
    writer.publish("disk", qos=1, number=100)
    say_run(writer, 1)
    answers = await writer.until_answered(PUBACK, 121)
    assert [number for number, _ in answers[before:]] == [100, 60, *range(1, 60)]


async def test_what_was_not_acknowledged_comes_again_in_order(house: MqttTestBroker) -> None:
    """The session of a client that reconnects within its expiry is stored; others end."""
    reader = await house.connected("reader", expiry=100)
    reader.subscribe("a", qos=1)
    say_run(await house.connected("writer"), 1)
    await reader.until_got(60)
    reader.acknowledge(PUBACK, reader.got[0].number)
    await reader.cut()
    reader = await house.connected("reader", clean=False, expiry=100)
    assert [message.payload for message in await reader.until_got(59)] == PAYLOADS
