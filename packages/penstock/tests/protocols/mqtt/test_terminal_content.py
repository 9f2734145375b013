"""Publishing by content through the terminal: what is taken, what is refused, and why."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.content_router import ContentRouter
from penstock.broker.permissions import TopicPermission
from penstock.wire.mqtt.fields import PUBACK, PUBREC
from penstock.wire.mqtt.properties import MqttProperties, MqttProperty
from penstock.wire.mqtt.reason_codes import ReasonCode
from tests import mqtt_wire
from tests.protocols.mqtt.broker import MqttTestBroker, published

BODY = bytes(range(256)) * 2000  # twice the size that is spooled
TOPIC = "$content/stock"


class ContentHouse(MqttTestBroker):
    """One with the exchange that a content space would have made."""

    def router(self, vhost: str) -> ContentRouter[Any]:
        if "content" not in self.vhost.exchanges:
            self.vhost.declare_exchange("content", "x-content", durable=True)
        return None  # type: ignore[return-value]  # nobody asks for more than the exchange


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[MqttTestBroker]:
    house = ContentHouse(tmp_path)
    yield house
    await house.close()


async def test_a_large_one_of_qos_2_that_broke_off_is_taken_when_it_comes_again(
    house: MqttTestBroker,
) -> None:
    reader = await house.connected("reader")
    reader.subscribe("$content/[class,eq,stock]", qos=2)
    writer = await house.connected("writer", expiry=100)
    writer.say(published(5, TOPIC, BODY, 2, 7)[:300_000])
    await writer.cut()
    writer = await house.connected("writer", clean=False, expiry=100)
    writer.publish(TOPIC, BODY, qos=2, number=7, duplicate=True)
    assert await writer.until_answered(PUBREC) == [(7, 0)]
    (message,) = await reader.until_got(1)
    assert message.payload == BODY


@pytest.mark.parametrize("payload", [b"small", BODY])
async def test_more_properties_than_a_frame_of_amqp_holds_are_refused(
    house: MqttTestBroker, payload: bytes
) -> None:
    writer = await house.connected("writer")
    many: MqttProperties = {
        MqttProperty.USER_PROPERTY: [(f"name{n}", "x" * 60_000) for n in range(4)],
    }
    writer.publish(TOPIC, payload, qos=1, number=1, properties=many)
    assert await writer.until_closed() == ReasonCode.PACKET_TOO_LARGE


async def test_a_text_in_the_language_that_is_too_long_is_told_so(house: MqttTestBroker) -> None:
    writer = await house.connected("writer")
    properties: MqttProperties = {MqttProperty.CONTENT_TYPE: "application/x-padres"}
    text = f"[class,stock],[text,'{'x' * 300_000}']".encode()
    writer.publish("$content", text, qos=1, number=1, properties=properties)
    _, body = await writer.hear(PUBACK)
    number, reason, told = mqtt_wire.decode_acknowledgement(PUBACK, body)
    assert (number, reason) == (1, ReasonCode.QUOTA_EXCEEDED)
    assert "too large" in told[MqttProperty.REASON_STRING]


@pytest.mark.parametrize("topic", ["$content", TOPIC])
@pytest.mark.parametrize("qos", [0, 1])
async def test_the_class_that_a_body_names_is_the_one_that_has_to_be_allowed(
    house: MqttTestBroker, topic: str, qos: int
) -> None:
    house.users.set_topic_permissions("guest", "/", "content", TopicPermission("^stock$", ".*"))
    reader = await house.connected("reader")
    for name in ("secret", "stock"):
        reader.subscribe(f"$content/[class,eq,{name}]", qos=1)
    writer = await house.connected("writer")
    told: MqttProperties = {MqttProperty.CONTENT_TYPE: "application/x-padres"}
    for number, name in enumerate(("secret", "stock"), 1):
        text = f"[class,{name}],[price,{number}]".encode()
        writer.publish(topic, text, qos=qos, number=number * bool(qos), properties=told)
    if qos:
        acknowledgements = await writer.until_answered(PUBACK, 2)
        assert acknowledgements == [(1, ReasonCode.NOT_AUTHORIZED), (2, ReasonCode.SUCCESS)]
    (message,) = await reader.until_got(1)
    assert message.payload == b"[class,stock],[price,2]"
