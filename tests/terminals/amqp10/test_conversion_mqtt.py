"""What MQTT says reaches AMQP 1.0, and comes back if it is sent on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.contract import PERSISTENT, Message
from penstock.core.properties import encode_route
from penstock.terminals.amqp10.conversion import incoming, outgoing
from penstock.terminals.mqtt.properties import Properties, Property
from penstock.terminals.mqtt.translation import flags_for, header_for, properties_of
from penstock.wire.amqp10.message import decode_message

ROUTE = encode_route("amq.topic", "a.b")

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
topics = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=30)
ascii_texts = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
names = texts.filter(lambda name: name not in ("CC", "BCC") and not name.startswith("x-"))

said = st.fixed_dictionaries(
    {},
    optional={
        Property.CONTENT_TYPE: ascii_texts,
        Property.CORRELATION_DATA: st.binary(max_size=300),
        Property.RESPONSE_TOPIC: topics,
        Property.MESSAGE_EXPIRY: st.integers(1, 4_294_967),
        Property.USER_PROPERTY: st.dictionaries(names, texts, min_size=1, max_size=4).map(
            lambda pairs: sorted(pairs.items())
        ),
    },
)


@given(said, st.integers(0, 2), st.binary(max_size=100))
def test_what_mqtt_says_comes_back_through_1_0(told: Properties, qos: int, body: bytes) -> None:
    """A client of 1.0 sends on, unaltered, what a client of MQTT has published."""
    message = Message(ROUTE, header_for(told, qos, len(body)), body, flags_for(qos, told))
    before, after = outgoing(message)
    found = incoming(before + body + after, 0.0)
    assert found.body == body
    assert bool(found.flags & PERSISTENT) == (qos > 0)
    again = properties_of(Message(ROUTE, found.header, found.body, found.flags))
    if Property.USER_PROPERTY in again:
        again[Property.USER_PROPERTY].sort()
    assert again == told


@given(said)
def test_what_mqtt_says_is_what_1_0_hears(told: Properties) -> None:
    before, _ = outgoing(Message(ROUTE, header_for(told, 1, 0), b"", flags_for(1, told)))
    heard = decode_message(before)
    assert heard.header is not None
    assert heard.header.durable
    expiry = told.get(Property.MESSAGE_EXPIRY)
    assert heard.header.ttl == (None if expiry is None else expiry * 1000)
    assert heard.application_properties == (dict(told.get(Property.USER_PROPERTY, ())) or None)
    properties = heard.properties
    content_type = None if properties is None else properties.content_type
    assert content_type == told.get(Property.CONTENT_TYPE)
