"""Messages of AMQP 1.0: their sections as bytes, and as values."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.amqp10.codec import encode
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.message import (
    DATA,
    SEQUENCE,
    VALUE,
    Amqp10Header,
    Amqp10Message,
    Amqp10Properties,
    AmqpSequences,
    AmqpValue,
    decode_message,
    encode_message,
    read_body,
    read_head,
)
from penstock.wire.amqp10.values import Described, Symbol, Timestamp, UByte, UInt, ULong
from tests.wire.amqp10.generated import BY_CODE, same, simple, something, symbols, texts

message_ids = texts | st.uuids() | st.binary(max_size=20) | BY_CODE[0x80]
instants = BY_CODE[0x83]
uints = BY_CODE[0x70]

headers = st.builds(
    Amqp10Header,
    durable=st.none() | st.booleans(),
    priority=st.none() | BY_CODE[0x50],
    ttl=st.none() | uints,
    first_acquirer=st.none() | st.booleans(),
    delivery_count=uints,
)
properties = st.builds(
    Amqp10Properties,
    message_id=st.none() | message_ids,
    user_id=st.none() | st.binary(max_size=20),
    to=st.none() | texts,
    subject=st.none() | texts,
    reply_to=st.none() | texts,
    correlation_id=st.none() | message_ids,
    content_type=st.none() | symbols,
    content_encoding=st.none() | symbols,
    absolute_expiry_time=st.none() | instants,
    creation_time=st.none() | instants,
    group_id=st.none() | texts,
    group_sequence=st.none() | uints,
    reply_to_group_id=texts,
)
keyed = st.dictionaries(symbols, something, max_size=3)
bodies = (
    st.binary(max_size=400)
    | st.builds(AmqpValue, something)
    | st.builds(AmqpSequences, st.lists(st.lists(something, max_size=3), min_size=1, max_size=3))
)
messages = st.builds(
    Amqp10Message,
    body=bodies,
    header=st.none() | headers,
    delivery_annotations=st.none() | keyed,
    message_annotations=st.none() | keyed,
    properties=st.none() | properties,
    application_properties=st.none() | st.dictionaries(texts, simple, max_size=3),
    footer=st.none() | keyed,
)


def test_a_message_is_its_sections_in_order() -> None:
    message = Amqp10Message(
        b"hi",
        header=Amqp10Header(durable=True, priority=UByte(3)),
        message_annotations={Symbol("x-a"): UInt(1)},
        properties=Amqp10Properties(message_id="m", content_type="text/plain"),
        application_properties={"k": True},
    )
    assert encode_message(message).hex() == (
        "005370" + "c00402" + "41" + "5003"
        "005372" + "c10802" + "a303782d61" + "5201"
        "005373" + "c01507" + "a1016d" + "40" * 5 + "a30a746578742f706c61696e"
        "005374" + "c10502" + "a1016b" + "41"
        "005375" + "a0026869"
    )


@given(messages)
def test_every_message_comes_back_as_it_was(message: Amqp10Message) -> None:
    again = decode_message(encode_message(message))
    for name in Amqp10Message.__slots__:
        assert _same(getattr(again, name), getattr(message, name))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Amqp10Header | Amqp10Properties | AmqpValue | AmqpSequences) and type(
        one
    ) is type(other):
        return all(_same(getattr(one, name), getattr(other, name)) for name in one.__slots__)
    return same(one, other)


@given(messages, st.data())
def test_the_head_is_read_as_soon_as_it_is_whole(
    message: Amqp10Message, data: st.DataObject
) -> None:
    written = encode_message(message)
    whole = read_head(written)
    assert whole is not None
    cut = data.draw(st.integers(0, len(written)))
    part = read_head(memoryview(written)[:cut], whole=False)
    if cut >= whole.body_at + 4:
        assert part is not None
    if part is not None:
        assert cut >= whole.body_at
        assert (part.header, part.properties, part.body_at, part.kind) == (
            whole.header,
            whole.properties,
            whole.body_at,
            whole.kind,
        )


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_message_or_a_decode_error(garbage: bytes) -> None:
    with suppress(DecodeError):
        decode_message(garbage)


@given(messages, st.data())
def test_a_damaged_message_is_a_message_or_a_decode_error(
    message: Amqp10Message, data: st.DataObject
) -> None:
    written = bytearray(encode_message(message))
    if written:
        at = data.draw(st.integers(0, len(written) - 1))
        written[at] = data.draw(st.integers(0, 255))
    with suppress(DecodeError):
        decode_message(bytes(written))


@pytest.mark.parametrize(
    ("descriptor", "kind"),
    [
        (Symbol("amqp:data:binary"), DATA),
        (Symbol("amqp:amqp-value:*"), VALUE),
        (ULong(0x75), DATA),
    ],
)
def test_sections_may_be_named_by_their_symbols(descriptor: Any, kind: int) -> None:
    assert decode_message(encode(Described(descriptor, b"hi"))).body in (b"hi", AmqpValue(b"hi"))
    head = read_head(encode(Described(descriptor, b"hi")))
    assert head is not None
    assert head.kind == kind


def test_a_descriptor_may_be_written_in_eight_bytes() -> None:
    written = b"\x00\x80" + (0x75).to_bytes(8, "big") + encode(b"hi")
    assert decode_message(written).body == b"hi"


def test_data_sections_are_one_body() -> None:
    assert decode_message(bytes.fromhex("005375a00161005375b00000000162")).body == b"ab"


def test_a_value_may_be_described() -> None:
    value = Described(Symbol("book"), ["Shadows"])
    assert decode_message(encode_message(Amqp10Message(AmqpValue(value)))).body == AmqpValue(value)


def test_a_message_without_a_body_is_an_empty_one() -> None:
    assert decode_message(b"") == Amqp10Message(b"")


def test_a_content_type_is_a_symbol_or_a_string() -> None:
    for kind in (str, Symbol):
        fields = [None] * 6 + [kind("text/plain")]
        message = decode_message(b"\x00\x53\x73" + encode(fields))
        assert message.properties == Amqp10Properties(content_type="text/plain")


@pytest.mark.parametrize(
    "written",
    [
        b"hello",
        encode(Described(ULong(0x75), "text")),  # data is binary
        encode(Described(ULong(0x70), {})),  # a header is a list
        encode(Described(ULong(0x79), [])),  # no such section
        encode(Described(Symbol("amqp:body"), b"")),
        encode(Described(ULong(0x73), [])) + encode(Described(ULong(0x70), [])),  # out of order
        encode(Described(ULong(0x73), [])) * 2,
        encode(Described(ULong(0x75), b"")) + encode(Described(ULong(0x77), None)),
        encode(Described(ULong(0x77), None)) * 2,
        encode(Described(ULong(0x75), b"")) + encode(Described(ULong(0x73), [])),
        encode(Described(ULong(0x78), {})) + encode(Described(ULong(0x75), b"")),
        encode(Described(ULong(0x70), [True] * 6)),
        encode(Described(ULong(0x70), ["yes"])),
        encode(Described(ULong(0x73), [True])),
        encode(Described(ULong(0x73), [None] * 9 + [5])),
        b"\x00\x53",
        b"\x00\x53\x75\xb0\xff\xff\xff\xffhi",
    ],
)
def test_what_is_no_message_is_refused(written: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_message(written)


def test_the_body_of_several_lists_says_where_each_lies() -> None:
    written = encode_message(
        Amqp10Message(AmqpSequences([[1], [2, 3]]), footer={Symbol("sum"): UUID(int=1)})
    )
    head = read_head(written)
    assert head is not None
    body = read_body(written, head)
    assert body.kind == SEQUENCE
    assert len(body.extents) == 2
    assert body.footer == encode({Symbol("sum"): UUID(int=1)})
    assert body.start == 0
    assert body.end == len(written) - 3 - len(body.footer)


def test_timestamps_are_milliseconds() -> None:
    message = Amqp10Message(properties=Amqp10Properties(creation_time=Timestamp(1_700_000_000_123)))
    assert decode_message(encode_message(message)) == message
