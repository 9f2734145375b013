"""Large messages through the terminal: in pieces both ways, and what may come between."""

from __future__ import annotations

import asyncio
import gc

import pytest

from penstock.broker.contract import Message
from penstock.wire.mqtt.fields import PINGRESP, PUBACK, PUBCOMP, PUBREC, PUBREL
from penstock.wire.mqtt.reason_codes import ReasonCode
from tests import mqtt_wire
from tests.protocols.mqtt.broker import MqttTestBroker, published

BODY = bytes(range(256)) * 2000  # twice the size that is spooled


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_it_arrives_as_it_was_sent(house: MqttTestBroker, qos: int) -> None:
    reader = await house.connected("reader")
    reader.subscribe("a", qos=qos)
    writer = await house.connected("writer")
    writer.publish("a", BODY, qos=qos, number=1 if qos else 0)
    (message,) = await reader.until_got(1)
    assert (message.topic, message.payload, message.qos) == (b"a", BODY, qos)


async def test_answers_wait_behind_it_and_come(house: MqttTestBroker) -> None:
    reader = await house.connected("reader")
    reader.subscribe("a", qos=1)
    writer = await house.connected("writer")
    writer.publish("a", BODY, qos=1, number=1)
    await reader.cable.until(lambda: len(reader.cable.written) > 1000)
    reader.say(mqtt_wire.PINGREQ)
    await reader.hear(PINGRESP)
    assert reader.payloads == [BODY]


async def test_one_of_qos_2_that_broke_off_is_taken_when_it_comes_again(
    house: MqttTestBroker,
) -> None:
    reader = await house.connected("reader")
    reader.subscribe("a", qos=2)
    writer = await house.connected("writer", expiry=100)
    packet = published(5, "a", BODY, 2, 7)
    writer.say(packet[:300_000])
    await writer.cut()
    writer = await house.connected("writer", clean=False, expiry=100)
    writer.publish("a", BODY, qos=2, number=7, duplicate=True)
    assert await writer.until_answered(PUBREC) == [(7, 0)]
    (message,) = await reader.until_got(1)
    assert message.payload == BODY


async def test_one_of_qos_2_that_came_whole_and_was_not_answered_is_delivered_once(
    house: MqttTestBroker,
) -> None:
    queue = house.stand.queue(durable=True)
    house.vhost.bind("amq.topic", queue, "#")
    writer = await house.connected("writer", expiry=100)
    came = asyncio.Event()
    push = queue.push

    def noticed(message: Message) -> int:
        came.set()
        return int(push(message))

    queue.push = noticed
    writer.publish("a", BODY, qos=2, number=7)
    await came.wait()
    await writer.cut()
    writer = await house.connected("writer", clean=False, expiry=100)
    writer.publish("a", BODY, qos=2, number=7, duplicate=True)
    await writer.until_answered(PUBREC)
    assert queue.message_count == 1


async def test_one_of_qos_2_that_comes_again_whole_is_delivered_once(house: MqttTestBroker) -> None:
    reader = await house.connected("reader")
    reader.subscribe("a", qos=2)
    writer = await house.connected("writer", expiry=100)
    writer.publish("a", BODY, qos=2, number=7)
    assert await writer.until_answered(PUBREC) == [(7, 0)]
    writer.publish("a", BODY, qos=2, number=7, duplicate=True)
    assert await writer.until_answered(PUBREC, 2) == [(7, 0), (7, 0)]
    writer.acknowledge(PUBREL, 7)
    assert await writer.until_answered(PUBCOMP) == [(7, 0)]
    assert len(await reader.until_got(1)) == 1


async def test_one_of_qos_2_that_was_refused_leaves_its_number_free(house: MqttTestBroker) -> None:
    full = house.stand.queue("full", max_length=1, overflow="reject-publish")
    house.vhost.bind("amq.topic", full, "a")
    writer = await house.connected("writer", expiry=100)
    writer.publish("a", qos=1, number=1)
    writer.publish("a", BODY, qos=2, number=7)
    assert await writer.until_answered(PUBREC) == [(7, ReasonCode.QUOTA_EXCEEDED)]
    await writer.cut()
    reader = await house.connected("reader")
    reader.subscribe("b", qos=2)
    writer = await house.connected("writer", clean=False, expiry=100)
    writer.publish("b", b"another", qos=2, number=7)
    assert await writer.until_answered(PUBREC) == [(7, 0)]
    assert [message.payload for message in await reader.until_got(1)] == [b"another"]


async def test_retained_ones_are_kept_one_after_another(house: MqttTestBroker) -> None:
    stream = house.vhost.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    house.vhost.bind("amq.topic", stream, "#")
    writer = await house.connected("writer")
    bodies = [bytes((n,)) * 300_000 for n in range(4)]
    for n, body in enumerate(bodies):
        writer.publish(f"kept/{n}", body, retain=True)
    writer.publish("done", qos=1, number=1)
    await writer.until_answered(PUBACK)
    reader = await house.connected("reader")
    reader.subscribe("kept/#")
    got = await reader.until_got(4)
    assert sorted((message.topic, message.payload) for message in got) == [
        (b"kept/%d" % n, body) for n, body in enumerate(bodies)
    ]


async def test_a_body_that_cannot_be_read_does_not_cost_the_session(house: MqttTestBroker) -> None:
    reader = await house.connected("reader", expiry=100)
    reader.subscribe("a", qos=1)
    await reader.cut()
    writer = await house.connected("writer")
    writer.publish("a", BODY, qos=1, number=1)
    await writer.until_answered(PUBACK)
    writer.publish("a", b"small", qos=1, number=2)
    await writer.until_answered(PUBACK, 2)
    house = await house.restarted()
    (body,) = (house.kernel.directory / "queues").rglob("*.body")
    with body.open("r+b") as file:
        file.truncate(100_000)
    reader = await house.connected("reader", clean=False, expiry=100)
    await reader.until_closed()
    assert house.session("reader") is not None
    await house.close()


async def test_what_is_larger_than_the_client_takes_is_passed_over(house: MqttTestBroker) -> None:
    reader = await house.connected("reader", maximum_packet_size=1000)
    reader.subscribe("a", qos=1)
    writer = await house.connected("writer")
    writer.publish("a", BODY, qos=1, number=1)
    writer.publish("a", b"small", qos=1, number=2)
    (message,) = await reader.until_got(1)
    assert message.payload == b"small"
    assert list(house.session("reader").inflight) == [message.number]


async def test_its_file_goes_with_its_last_reader(house: MqttTestBroker) -> None:
    reader = await house.connected("reader")
    reader.subscribe("a", qos=1)
    writer = await house.connected("writer")
    writer.subscribe("b")
    writer.publish("a", BODY, qos=1, number=1)
    await writer.until_answered(PUBACK)
    (message,) = await reader.until_got(1)
    reader.answer(message)
    await house.stand.synced()
    gc.collect()
    assert house.stand.spooled == []


async def test_nothing_is_held_when_reader_and_writer_are_gone(house: MqttTestBroker) -> None:
    reader = await house.connected("reader")
    reader.subscribe("a", qos=1)
    writer = await house.connected("writer")
    packet = published(5, "a", BODY, 1, 1)
    writer.say(packet)
    await reader.cable.until(lambda: len(reader.cable.written) > 1000)
    writer.say(packet[:300_000])
    await reader.cut()
    await writer.cut()
    while house.kernel.pool.used:  # what the disk is at work on ends first
        relieved = asyncio.Event()
        house.kernel.pool.when_relieved(relieved.set)
        await asyncio.wait_for(relieved.wait(), 60)
