"""Whatever is said in AMQP 1.0 or 0-9-1, the other side says it back."""

from __future__ import annotations

import string
from contextlib import suppress
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.content_header import message_flags
from penstock.broker.contract import SENDER_SELECTED, Message
from penstock.core.basic_properties import (
    BasicProperties,
    decode_header,
    encode_header,
    encode_route,
)
from penstock.core.errors import WireSyntaxError
from penstock.core.field_table import decode_table
from penstock.protocols.amqp10.conversion import decoder
from penstock.protocols.amqp10.conversion.decoder import convert_incoming
from penstock.protocols.amqp10.conversion.encoder import convert_outgoing
from penstock.protocols.amqp10.conversion.preserved_sections import (
    SIGNATURE_HEADER,
    verified_sections,
)
from penstock.wire.amqp10 import message as wire
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.message import decode_message, encode_message
from penstock.wire.amqp10.values import Symbol
from tests.wire.amqp10.generated import BY_CODE, same, texts
from tests.wire.amqp10.test_message import headers as headers_of_1_0
from tests.wire.amqp10.test_message import messages

ROUTE = encode_route("x", "k")
OURS = {Symbol("x-exchange"), Symbol("x-routing-key"), Symbol("x-stream-offset")}
#: Annotations that stand for a basic property or a header with a meaning, where they fit.
MEANT = {Symbol("x-cc"), Symbol("x-basic-type"), Symbol("x-basic-cluster-id")}


@pytest.mark.parametrize("broken", [False, True], ids=["sealed", "seal broken"])
@given(messages)
def test_the_bare_message_and_its_footer_come_back_to_1_0_exact(
    broken: bool, message: wire.Amqp10Message
) -> None:
    found = convert_incoming(encode_message(message), 0.0)
    assert (found.flags ^ message_flags(found.header)) & ~SENDER_SELECTED == 0
    if broken:  # as that of a message from before a restart is
        found.header = found.header.replace(SIGNATURE_HEADER + b"x", SIGNATURE_HEADER + b"S", 1)
        assert verified_sections(found.header) is None
    before, after = convert_outgoing(Message(ROUTE, found.header, found.body, found.flags))
    again = decode_message(before + found.body + after)
    assert _same_body(again.body, message.body)
    assert same(again.application_properties or {}, message.application_properties or {})
    assert (again.properties or wire.Amqp10Properties()) == (
        message.properties or wire.Amqp10Properties()
    )
    assert same(again.footer, message.footer)
    noted = again.message_annotations or {}
    for key, value in (message.message_annotations or {}).items():
        if key not in OURS | MEANT:
            assert same(noted[key], value)


def _same_body(one: Any, other: Any) -> bool:
    if isinstance(one, wire.AmqpValue) and isinstance(other, wire.AmqpValue):
        return same(one.value, other.value)
    if isinstance(one, wire.AmqpSequences) and isinstance(other, wire.AmqpSequences):
        return same(one.lists, other.lists)
    return same(one, other)


simple_texts = st.text(st.characters(max_codepoint=127), max_size=20)
common = st.builds(
    wire.Amqp10Message,
    properties=st.builds(
        wire.Amqp10Properties,
        message_id=st.none() | simple_texts | texts,
        to=st.none() | simple_texts,
        subject=st.none() | texts,
        correlation_id=st.none() | simple_texts | st.uuids(),
        content_type=st.none() | simple_texts,
        creation_time=st.none() | BY_CODE[0x83],
        group_id=st.none() | simple_texts,
    ),
    application_properties=st.none()
    | st.dictionaries(
        simple_texts | st.sampled_from(["CC", "x-a"]),
        texts | st.booleans() | st.integers(-300, 300) | BY_CODE[0x71] | BY_CODE[0x70],
        max_size=4,
    ),
)


plain = st.builds(
    wire.Amqp10Message, body=st.binary(max_size=300), header=st.none() | headers_of_1_0
)


@given(common | plain)
def test_the_short_way_and_the_long_way_lead_to_the_same(message: wire.Amqp10Message) -> None:
    payload = encode_message(message)
    short = convert_incoming(payload, 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "_fast_data_message", lambda *_: None)
        patch.setattr(decoder, "_fast_properties", lambda *_: None)
        patch.setattr(decoder, "_fast_application_properties", lambda *_: None)
        long = convert_incoming(payload, 0.0)
    assert (short.to, short.subject, short.flags) == (long.to, long.subject, long.flags)
    assert short.body == long.body
    one, other = decode_header(short.header), decode_header(long.header)
    for said in (one, other):
        (said.headers or {}).pop(SIGNATURE_HEADER.decode(), None)
    assert one == other


@given(st.binary(max_size=60), st.sampled_from([0x70, 0x73, 0x74, 0x75]), st.booleans())
def test_no_shortcut_leads_past_what_is_wrong(garbage: bytes, code: int, data: bool) -> None:
    constructor = {0x74: 0xC1, 0x75: 0xA0}.get(code, 0xC0)
    payload = bytes((0x00, 0x53, code, constructor, len(garbage))) + garbage
    payload += b"\x00\x53\x75\xa0\x02hi" if data else b""
    try:
        decode_message(payload)
    except DecodeError:
        with pytest.raises(DecodeError):
            convert_incoming(payload, 0.0)
    else:
        with suppress(DecodeError):  # application properties are named by strings
            convert_incoming(payload, 0.0)


short = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
ascii_text = st.text(st.sampled_from(string.ascii_letters + string.digits + "-/;=. "), max_size=40)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=40)
    | st.binary(max_size=20)
    | st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(microsecond=0))
    | st.decimals(places=3, min_value=-2_000_000, max_value=2_000_000)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ascii_text, inner, max_size=3),
    max_leaves=6,
)
names = st.text(st.sampled_from(string.ascii_letters), min_size=3, max_size=20)
headers = st.dictionaries(names | names.map("x-".__add__), values, max_size=5)
published = st.builds(
    BasicProperties,
    content_type=st.none() | ascii_text,
    content_encoding=st.none() | ascii_text,
    headers=st.none() | headers,
    delivery_mode=st.sampled_from([1, 2]),
    priority=st.none() | st.integers(0, 255),
    correlation_id=st.none() | short,
    reply_to=st.none() | names,
    expiration=st.none() | st.integers(0, 0xFFFFFFFF).map(str),
    message_id=st.none() | short,
    timestamp=st.none() | st.integers(0, 1 << 40),
    type=st.none() | short,
    user_id=st.none() | short,
    app_id=st.none() | short,
    cluster_id=st.none() | short,
)


@given(published, st.binary(max_size=300))
def test_what_0_9_1_says_comes_back_through_1_0(said: BasicProperties, body: bytes) -> None:
    """A client of 1.0 sends on, unaltered, what it got."""
    message = Message(ROUTE, encode_header(said, len(body)), body)
    before, after = convert_outgoing(message)
    found = convert_incoming(before + body + after, 0.0)
    assert found.body == body
    again = decode_header(found.header)
    carried = {
        name: value
        for name, value in (again.headers or {}).items()
        if not name.startswith("x-amqp-1.0-")
    }
    again.headers = None
    assert carried == (said.headers or {})
    said.headers = None
    assert again == said


@given(st.binary(max_size=120))
def test_a_table_of_any_bytes_is_converted_or_left_out(table: bytes) -> None:
    header = encode_header(BasicProperties(message_id="m"), 0)
    assert header[12:14] == b"\x00\x80"
    forged = header[:12] + b"\x20\x80" + len(table).to_bytes(4, "big") + table + header[14:]
    before, after = convert_outgoing(Message(ROUTE, forged, b""))
    got = decode_message(before + after)
    assert got.properties == wire.Amqp10Properties(message_id="m")
    try:
        decode_table(len(table).to_bytes(4, "big") + table)
    except WireSyntaxError:
        assert not got.application_properties


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_decode_error(garbage: bytes) -> None:
    try:
        found = convert_incoming(garbage, 0.0)
    except DecodeError:
        return
    assert (found.flags ^ message_flags(found.header)) & ~SENDER_SELECTED == 0
    decode_header(found.header)
