"""The offset among a message's headers: spliced in, as if it had been decoded and encoded."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.content_header import message_flags
from penstock.broker.contract import Message
from penstock.core.basic_properties import BasicProperties, decode_header, encode_header
from penstock.destinations.stream import add_offset_header

texts = st.one_of(st.none(), st.text(max_size=20))
octets = st.one_of(st.none(), st.integers(0, 255))
values = st.one_of(st.integers(-(2**31), 2**31), st.text(max_size=10), st.booleans(), st.none())
names = st.one_of(st.text(min_size=1, max_size=10), st.just("x-stream-offset"))
tables = st.one_of(st.none(), st.dictionaries(names, values, max_size=4))
properties = st.builds(
    BasicProperties,
    content_type=texts,
    content_encoding=texts,
    headers=tables,
    delivery_mode=octets,
    priority=octets,
    correlation_id=texts,
    reply_to=texts,
    expiration=texts,
    message_id=texts,
    timestamp=st.one_of(st.none(), st.integers(0, 2**63 - 1)),
    type=texts,
    user_id=texts,
    app_id=texts,
    cluster_id=texts,
)


@given(properties, st.integers(0, 2**62), st.binary(max_size=20))
def test_it_says_what_decoding_and_encoding_would(
    given_properties: BasicProperties, offset: int, body: bytes
) -> None:
    header = encode_header(given_properties, len(body))
    numbered = add_offset_header(Message(b"\x00\x01k", header, body, 5), offset)

    expected: dict[str, Any] = {**(given_properties.headers or {}), "x-stream-offset": offset}
    seen = decode_header(numbered.header)
    assert seen.headers == expected
    seen.headers = given_properties.headers
    assert seen == given_properties
    assert (numbered.size, numbered.body, numbered.route, numbered.flags) == (
        len(body),
        body,
        b"\x00\x01k",
        5,
    )
    message_flags(numbered.header)


@given(properties, st.integers(0, 1000))
def test_the_message_itself_is_left_alone(given_properties: BasicProperties, offset: int) -> None:
    header = encode_header(given_properties, 0)
    original = Message(b"\x00\x01k", header, b"")
    add_offset_header(original, offset)
    assert original.header == header
