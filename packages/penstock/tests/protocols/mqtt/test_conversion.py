"""Publications of MQTT as messages of AMQP, and back."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker import content_header
from penstock.broker.contract import EXACTLY_ONCE, EXPIRES, PERSISTENT, Message
from penstock.core.basic_properties import BasicProperties as Header
from penstock.core.basic_properties import (
    decode_header,
    encode_header,
    encode_minimal_header,
    encode_route,
)
from penstock.protocols.mqtt.conversion import (
    CORRELATION_HEADER,
    PROPERTIES_HEADER,
    REPLY_TO_HEADER,
    decode_publish_properties,
    encode_content_header,
    message_flags,
    message_properties,
)
from penstock.wire.mqtt.fields import PUBLISH, read_varint
from penstock.wire.mqtt.properties import (
    MqttProperties,
    MqttProperty,
    decode_properties,
    encode_properties,
)
from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode
from penstock.wire.mqtt.topics import routing_key_to_topic, topic_to_routing_key

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
topics = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1)
#: Names that mean something in AMQP are as good as any other here.
names = texts | st.sampled_from(
    [PROPERTIES_HEADER, REPLY_TO_HEADER, CORRELATION_HEADER, "CC", "BCC", "x-death", "n" * 300]
)

publications = st.fixed_dictionaries(
    {},
    optional={
        MqttProperty.PAYLOAD_FORMAT: st.integers(0, 1),
        MqttProperty.MESSAGE_EXPIRY: st.integers(0, 2**32 - 1),
        MqttProperty.CONTENT_TYPE: texts | st.just("t" * 300),
        MqttProperty.RESPONSE_TOPIC: topics | st.just("a.b/c*d" * 100),
        MqttProperty.CORRELATION_DATA: st.binary(max_size=300),
        MqttProperty.USER_PROPERTY: st.lists(
            st.tuples(names, texts | st.just("v" * 70)), min_size=1, max_size=5
        ),
    },
)


def carried(properties: MqttProperties, qos: int = 1, body: bytes = b"hello") -> Message:
    header = encode_content_header(properties, qos, len(body))
    return Message(encode_route("amq.topic", "a"), header, body, message_flags(qos, properties))


def of_amqp(**properties: Any) -> Message:
    header = encode_header(Header(**properties), 5)
    return Message(
        encode_route("amq.topic", "a"), header, b"hello", content_header.message_flags(header)
    )


def told(message: Message) -> MqttProperties:
    """As a client reads it: what cannot be encoded is no answer."""
    encoded = encode_properties(message_properties(message))
    length, start = read_varint(encoded, 0)
    assert length == len(encoded) - start
    return decode_properties(encoded[start:], PUBLISH)


# There and back.


@given(publications, st.integers(0, 2), st.binary(max_size=20))
def test_every_publication_arrives_with_the_properties_it_was_sent_with(
    properties: MqttProperties, qos: int, body: bytes
) -> None:
    assert told(carried(properties, qos, body)) == properties


@pytest.mark.parametrize("name", [PROPERTIES_HEADER, REPLY_TO_HEADER, CORRELATION_HEADER])
def test_a_user_property_may_have_a_name_that_means_something_in_amqp(name: str) -> None:
    properties: MqttProperties = {MqttProperty.USER_PROPERTY: [(name, "value")]}
    assert told(carried(properties)) == properties


@given(topics)
def test_every_topic_arrives_as_it_was_sent(topic: str) -> None:
    assert routing_key_to_topic(topic_to_routing_key(topic.encode())) == topic.encode()


@given(publications, st.integers(0, 2))
def test_drivers_find_the_flags_they_would_read_from_the_header(
    properties: MqttProperties, qos: int
) -> None:
    message = carried(properties, qos)
    for flag in (PERSISTENT, EXPIRES):
        assert message.flags & flag == content_header.message_flags(message.header) & flag
    assert bool(message.flags & EXACTLY_ONCE) == (qos == 2)
    assert message.size == 5


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publication_without_properties_has_a_header_of_its_own(qos: int) -> None:
    header = encode_minimal_header(5, qos > 0)
    assert decode_header(header) == Header(delivery_mode=2 if qos else 1)
    assert header == encode_content_header({}, qos, 5)


def test_what_is_the_connections_is_not_carried() -> None:
    properties: MqttProperties = {
        MqttProperty.TOPIC_ALIAS: 5,
        MqttProperty.SUBSCRIPTION_IDENTIFIER: [7],
        MqttProperty.PAYLOAD_FORMAT: 1,
    }
    assert told(carried(properties)) == {MqttProperty.PAYLOAD_FORMAT: 1}


def test_a_subscription_identifier_is_not_a_clients_to_send() -> None:
    with pytest.raises(MqttError) as caught:
        decode_publish_properties(
            encode_properties({MqttProperty.SUBSCRIPTION_IDENTIFIER: [7]})[1:]
        )
    assert caught.value.reason == ReasonCode.PROTOCOL_ERROR


# What an AMQP client sees.


def test_properties_have_their_places_in_amqp() -> None:
    message = carried(
        {
            MqttProperty.CONTENT_TYPE: "text/plain",
            MqttProperty.CORRELATION_DATA: b"42",
            MqttProperty.RESPONSE_TOPIC: "replies/me",
            MqttProperty.MESSAGE_EXPIRY: 3,
            MqttProperty.USER_PROPERTY: [("colour", "blue")],
        }
    )
    header = decode_header(message.header)
    assert header.content_type == "text/plain"
    assert header.correlation_id == "42"
    assert header.expiration == "3000"
    assert header.headers == {REPLY_TO_HEADER: "replies.me", "colour": "blue"}


def test_of_a_name_that_comes_twice_amqp_sees_the_first() -> None:
    message = carried({MqttProperty.USER_PROPERTY: [("n", "1"), ("n", "2")]})
    headers = decode_header(message.header).headers
    assert headers is not None
    assert headers["n"] == "1"


def test_binary_correlation_data_is_a_header() -> None:
    message = carried({MqttProperty.CORRELATION_DATA: b"\xff\x00"})
    header = decode_header(message.header)
    assert header.correlation_id is None
    assert header.headers == {CORRELATION_HEADER: b"\xff\x00"}


# What an MQTT client is told of an AMQP message.


fields = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.decimals(-1000, 1000, places=2)
    | st.text()
    | st.binary()
    | st.integers(0, 200_000_000_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner),
    max_leaves=5,
)
plain = st.text(st.characters(codec="utf-8"), max_size=60)
short = plain | st.just("\udcff")  # no UTF-8, which short strings need not be
headers = st.dictionaries(
    plain | st.sampled_from([PROPERTIES_HEADER, REPLY_TO_HEADER, CORRELATION_HEADER]),
    fields,
    max_size=5,
)


@given(
    st.builds(
        of_amqp,
        content_type=st.none() | short,
        headers=st.none() | headers,
        delivery_mode=st.sampled_from([None, 1, 2]),
        priority=st.none() | st.integers(0, 255),
        correlation_id=st.none() | short,
        reply_to=st.none() | short,
        expiration=st.none() | st.integers(0, 2**32).map(str),
        message_id=st.none() | short,
        timestamp=st.none() | st.integers(0, 2**63),
    )
)
def test_every_amqp_message_can_be_told(message: Message) -> None:
    assert MqttProperty.TOPIC_ALIAS not in told(message)


def test_headers_are_user_properties_as_text() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    message = of_amqp(
        headers={"a": "text", "b": 7, "c": True, "d": 1.5, "e": None, "f": moment, "g": [1]}
    )
    assert told(message)[MqttProperty.USER_PROPERTY] == [
        ("a", "text"),
        ("b", "7"),
        ("c", "true"),
        ("d", "1.5"),
        ("e", ""),
        ("f", "1767323045"),
    ]


@pytest.mark.parametrize("value", [Decimal("1.5"), [1], {"a": 1}, b"\xff", "nul\0"])
def test_what_has_no_short_form_is_left_out(value: Any) -> None:
    assert told(of_amqp(headers={"h": value})) == {}


@pytest.mark.parametrize("reply_to", ["a.#", "a.*.b", "", "nul\0"])
def test_a_reply_key_that_is_no_topic_is_left_out(reply_to: str) -> None:
    assert MqttProperty.RESPONSE_TOPIC not in told(of_amqp(headers={REPLY_TO_HEADER: reply_to}))


def test_correlation_data_longer_than_mqtt_has_is_left_out() -> None:
    assert told(of_amqp(headers={CORRELATION_HEADER: b"." * 70_000})) == {}


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("9" * 255, 2**32 - 1), ("٣000", 3)])
def test_an_expiration_is_told_as_far_as_mqtt_can_count(text: str, seconds: int) -> None:
    assert told(of_amqp(expiration=text)) == {MqttProperty.MESSAGE_EXPIRY: seconds}


def test_an_expiration_in_the_middle_of_a_second_has_not_passed() -> None:
    assert told(of_amqp(expiration="500"))[MqttProperty.MESSAGE_EXPIRY] == 1


@pytest.mark.parametrize(
    "smuggled",
    [
        {MqttProperty.TOPIC_ALIAS: 5},
        {MqttProperty.SUBSCRIPTION_IDENTIFIER: [9]},
    ],
)
def test_a_forged_envelope_brings_nothing_that_is_the_connections(smuggled: MqttProperties) -> None:
    forged = bytearray(encode_properties({**smuggled, MqttProperty.PAYLOAD_FORMAT: 1}))
    found = told(of_amqp(headers={PROPERTIES_HEADER: forged}))
    assert not found.keys() & smuggled.keys()


@pytest.mark.parametrize("envelope", [b"", b"\xff", bytearray(b"\x05\x01"), "text", 7, [1]])
def test_an_envelope_that_is_none_is_passed_over(envelope: Any) -> None:
    message = of_amqp(content_type="text/plain", headers={PROPERTIES_HEADER: envelope})
    assert told(message) == {MqttProperty.CONTENT_TYPE: "text/plain"}


def test_a_table_that_lies_is_passed_over() -> None:
    header = bytearray(encode_header(Header(headers={"k": "v"}), 5))
    header[-5:] = b"?????"
    message = Message(encode_route("amq.topic", "a"), bytes(header), b"hello")
    assert message_properties(message) == {}
