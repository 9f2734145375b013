"""Properties of messages arrive as they were sent (section 3.3.2.3)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.mqtt.building import packet_bytes, publish_bytes, string
from tests.integration.mqtt.dialogue import Client, Connect
from tests.integration.mqtt.packets import MQTT_3, Kind, Property
from tests.integration.mqtt.statements import mosquitto_departs, mqtt_5

pytestmark = mqtt_5


def shortly(value: object) -> str:
    return value.name if isinstance(value, Property) else repr(value)[:20]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (Property.PAYLOAD_FORMAT, 0),
        (Property.PAYLOAD_FORMAT, 1),
        (Property.CONTENT_TYPE, "application/json; charset=utf-8"),
        (Property.CONTENT_TYPE, "ü/\U0001f41d"),
        (Property.CONTENT_TYPE, "x" * 300),
        (Property.CONTENT_TYPE, ""),
        (Property.RESPONSE_TOPIC, "answers/to me/ü"),
        (Property.RESPONSE_TOPIC, "a.b/c.d"),
        (Property.RESPONSE_TOPIC, "x" * 300),
        (Property.CORRELATION_DATA, b"text"),
        (Property.CORRELATION_DATA, bytes(range(256))),
        (Property.CORRELATION_DATA, b""),
        (Property.CORRELATION_DATA, b"\xff" * 65_535),
        (Property.MESSAGE_EXPIRY, 0xFFFF_FFFF),
        (Property.USER_PROPERTY, ("name", "value")),
        (Property.USER_PROPERTY, ("", "")),
        (Property.USER_PROPERTY, ("ü", "\ufeff\U0001f41d")),
        (Property.USER_PROPERTY, ("x" * 300, "y" * 3000)),
        (Property.USER_PROPERTY, ("longest", "z" * 65_535)),
    ],
    ids=shortly,
)
@pytest.mark.parametrize("qos", [0, 1])
def test_a_property_is_passed_on_unaltered(
    client: Client, publisher: Client, topic: str, qos: int, name: Property, value: Any
) -> None:
    client.subscribe(topic, options=qos)

    publisher.publish(topic, b"payload", qos=qos, properties=[(name, value)])

    packet = client.receive(Kind.PUBLISH)
    assert list(packet.properties) == [(name, value)]


def test_all_of_them_are_passed_on_together(client: Client, publisher: Client, topic: str) -> None:
    properties = [
        (Property.PAYLOAD_FORMAT, 1),
        (Property.CONTENT_TYPE, "text/plain"),
        (Property.RESPONSE_TOPIC, "answers"),
        (Property.CORRELATION_DATA, b"\0\1"),
        (Property.USER_PROPERTY, ("a", "b")),
    ]
    client.subscribe(topic)

    publisher.publish(topic, properties=properties)

    assert sorted(client.receive(Kind.PUBLISH).properties) == sorted(properties)


def test_user_properties_keep_their_order_and_their_doubles(
    client: Client, publisher: Client, topic: str
) -> None:
    pairs = [("b", "1"), ("a", "2"), ("b", "3"), ("b", "1"), ("", "5"), ("a", "")]
    client.subscribe(topic)

    publisher.publish(topic, properties=[(Property.USER_PROPERTY, pair) for pair in pairs])

    assert client.receive(Kind.PUBLISH).all(Property.USER_PROPERTY) == pairs


def test_there_may_be_many_user_properties(client: Client, publisher: Client, topic: str) -> None:
    pairs = [(str(count % 7), str(count)) for count in range(500)]
    client.subscribe(topic)

    publisher.publish(topic, properties=[(Property.USER_PROPERTY, pair) for pair in pairs])

    assert client.receive(Kind.PUBLISH).all(Property.USER_PROPERTY) == pairs


def test_user_properties_named_as_the_brokers_own_are_passed_on(
    client: Client, publisher: Client, topic: str
) -> None:
    pairs = [("x-mqtt-publish-qos", "7"), ("x-mqtt-dup", "no"), ("CC", "everyone"), ("x-death", "")]
    client.subscribe(topic)

    publisher.publish(topic, properties=[(Property.USER_PROPERTY, pair) for pair in pairs])

    assert client.receive(Kind.PUBLISH).all(Property.USER_PROPERTY) == pairs


def test_without_properties_none_arrive(client: Client, publisher: Client, topic: str) -> None:
    client.subscribe(topic)

    publisher.publish(topic)

    assert list(client.receive(Kind.PUBLISH).properties) == []


def test_they_are_kept_for_who_is_away(connect: Connect, publisher: Client, topic: str) -> None:
    properties = [
        (Property.CONTENT_TYPE, "text/plain"),
        (Property.USER_PROPERTY, ("b", "1")),
        (Property.USER_PROPERTY, ("a", "2")),
    ]
    lasting = {"clean": False, "properties": [(Property.SESSION_EXPIRY, 60)]}
    first = connect(**lasting)
    first.subscribe(topic, options=1)
    first.disconnect()

    publisher.publish(topic, properties=properties)

    packet = connect(first.client_id, **lasting).receive(Kind.PUBLISH)
    assert packet.get(Property.CONTENT_TYPE) == "text/plain"
    assert packet.all(Property.USER_PROPERTY) == [("b", "1"), ("a", "2")]


def test_a_reader_of_3_1_1_is_not_troubled_with_them(
    connect: Connect, publisher: Client, topic: str
) -> None:
    reader = connect(version=MQTT_3)
    reader.subscribe(topic)

    publisher.publish(topic, b"plain", properties=[(Property.USER_PROPERTY, ("a", "b"))])

    assert reader.receive(Kind.PUBLISH).payload == b"plain"


@pytest.mark.parametrize(
    ("properties", "reasons"),
    [
        pytest.param([(Property.CONTENT_TYPE, b"\xff")], (0x81,), id="a content type not UTF-8"),
        pytest.param([(Property.RESPONSE_TOPIC, b"\xff")], (0x81,), id="a response topic not so"),
        pytest.param([(Property.USER_PROPERTY, ("a", b"\xff"))], (0x81,), id="a value not UTF-8"),
        pytest.param([(Property.USER_PROPERTY, (b"\xff", "a"))], (0x81,), id="a name not UTF-8"),
        pytest.param([(Property.USER_PROPERTY, ("a", "\0"))], (0x81,), id="a null character"),
        pytest.param([(Property.MESSAGE_EXPIRY, 1)] * 2, (0x82,), id="two expiries"),
        pytest.param([(Property.CONTENT_TYPE, "a")] * 2, (0x82,), id="two content types"),
        pytest.param([(Property.RECEIVE_MAXIMUM, 1)], (0x81, 0x82), id="one of a CONNECT"),
        pytest.param([(Property.SESSION_EXPIRY, 1)], (0x81, 0x82), id="another of a CONNECT"),
    ],
)
def test_a_property_against_the_rules_ends_the_connection(
    client: Client, topic: str, properties: list[tuple[Property, Any]], reasons: tuple[int, ...]
) -> None:
    client.send(publish_bytes(topic, properties=properties))

    client.expect_refusal(*reasons)


@pytest.mark.parametrize(
    ("properties", "reasons"),
    [
        pytest.param([(Property.SUBSCRIPTION_IDENTIFIER, 1)], (0x82,), id="an identifier"),
        pytest.param([(Property.RESPONSE_TOPIC, "a/#")], (0x82, 0x90), id="a response wildcard"),
        pytest.param([(Property.RESPONSE_TOPIC, "a/+")], (0x82, 0x90), id="another one"),
        pytest.param([(Property.PAYLOAD_FORMAT, 2)], (0x81, 0x82), id="an unknown format"),
    ],
)
@mosquitto_departs("ignores them")
def test_a_property_no_client_may_send_ends_the_connection(
    client: Client, topic: str, properties: list[tuple[Property, Any]], reasons: tuple[int, ...]
) -> None:
    client.send(publish_bytes(topic, properties=properties))

    client.expect_refusal(*reasons)


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(b"\x20", id="longer than the packet"),
        pytest.param(b"\x02\x02\x00", id="cut short"),
        pytest.param(b"\x02\x7f\x00", id="of an unknown name"),
        pytest.param(b"\x80\x00", id="with a length of more bytes than it needs"),
        pytest.param(b"\xff\xff\xff\xff\x7f", id="with a length of five bytes"),
    ],
)
def test_properties_that_cannot_be_read_end_the_connection(
    client: Client, topic: str, properties: bytes
) -> None:
    client.send(packet_bytes(Kind.PUBLISH, string(topic) + properties))

    client.expect_refusal(0x81, 0x82)
