"""What MQTT says reaches AMQP 1.0, and comes back if it is sent on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.contract import PERSISTENT, Message
from penstock.core.basic_properties import encode_route
from penstock.protocols.amqp10.conversion.decoder import convert_incoming
from penstock.protocols.amqp10.conversion.encoder import convert_outgoing
from penstock.protocols.mqtt.conversion import (
    encode_content_header,
    message_flags,
    message_properties,
)
from penstock.wire.amqp10.message import decode_message
from penstock.wire.mqtt.properties import MqttProperties, MqttProperty

ROUTE = encode_route("amq.topic", "a.b")

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
topics = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=30)
ascii_texts = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
names = texts.filter(lambda name: name not in ("CC", "BCC") and not name.startswith("x-"))

said = st.fixed_dictionaries(
    {},
    optional={
        MqttProperty.CONTENT_TYPE: ascii_texts,
        MqttProperty.CORRELATION_DATA: st.binary(max_size=300),
        MqttProperty.RESPONSE_TOPIC: topics,
        MqttProperty.MESSAGE_EXPIRY: st.integers(1, 4_294_967),
        MqttProperty.USER_PROPERTY: st.dictionaries(names, texts, min_size=1, max_size=4).map(
            lambda pairs: sorted(pairs.items())
        ),
    },
)


@given(said, st.integers(0, 2), st.binary(max_size=100))
def test_what_mqtt_says_comes_back_through_1_0(told: MqttProperties, qos: int, body: bytes) -> None:
    """A client of 1.0 sends on, unaltered, what a client of MQTT has published."""
    message = Message(
        ROUTE, encode_content_header(told, qos, len(body)), body, message_flags(qos, told)
    )
    before, after = convert_outgoing(message)
    found = convert_incoming(before + body + after, 0.0)
    assert found.body == body
    assert bool(found.flags & PERSISTENT) == (qos > 0)
    again = message_properties(Message(ROUTE, found.header, found.body, found.flags))
    if MqttProperty.USER_PROPERTY in again:
        again[MqttProperty.USER_PROPERTY].sort()
    assert again == told


@given(said)
def test_what_mqtt_says_is_what_1_0_hears(told: MqttProperties) -> None:
    before, _ = convert_outgoing(
        Message(ROUTE, encode_content_header(told, 1, 0), b"", message_flags(1, told))
    )
    heard = decode_message(before)
    assert heard.header is not None
    assert heard.header.durable
    expiry = told.get(MqttProperty.MESSAGE_EXPIRY)
    assert heard.header.ttl == (None if expiry is None else expiry * 1000)
    assert heard.application_properties == (dict(told.get(MqttProperty.USER_PROPERTY, ())) or None)
    properties = heard.properties
    content_type = None if properties is None else properties.content_type
    assert content_type == told.get(MqttProperty.CONTENT_TYPE)
