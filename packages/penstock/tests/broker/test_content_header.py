"""Content headers and routes: golden bytes, pamqp as a peer, the flags, and bad input."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pamqp.commands
import pamqp.header
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.content_header import message_flags
from penstock.broker.contract import EXPIRES, PERSISTENT, PRIORITY, SENDER_SELECTED, Message
from penstock.core.basic_properties import (
    BasicProperties,
    decode_header,
    decode_route,
    encode_header,
    encode_route,
)
from penstock.core.errors import UnexpectedFrame, WireSyntaxError

FULL = BasicProperties(
    content_type="text/plain",
    content_encoding="gzip",
    headers={"a": 1, "b": [True, None]},
    delivery_mode=2,
    priority=9,
    correlation_id="c",
    reply_to="amq.rabbitmq.reply-to",
    expiration="60000",
    message_id="m",
    timestamp=1767323045,
    type="t",
    user_id="guest",
    app_id="app",
    cluster_id="cluster",
)

shortstrs = st.text(max_size=60)
octets = st.integers(0, 255)
headers = st.dictionaries(
    shortstrs, st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | shortstrs, max_size=4
)
properties = st.builds(
    BasicProperties,
    **{
        name: st.none() | shortstrs
        for name, kind in BasicProperties.__annotations__.items()
        if kind == "str | None"
    },
    headers=st.none() | headers,
    delivery_mode=st.none() | octets,
    priority=st.none() | octets,
    timestamp=st.none() | st.integers(0, 2**64 - 1),
)


def test_the_golden_bytes_of_a_common_header() -> None:
    header = encode_header(BasicProperties(content_type="text/plain", delivery_mode=2), 5)

    assert header == (b"\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\x90\x00\x0atext/plain\x02")


def test_no_properties_take_fourteen_bytes() -> None:
    assert encode_header(BasicProperties(), 0) == b"\x00\x3c" + bytes(12)


@given(properties, st.integers(0, 2**64 - 1))
def test_what_is_written_is_read_back(given_properties: BasicProperties, size: int) -> None:
    header = encode_header(given_properties, size)

    assert decode_header(header) == given_properties
    assert Message(b"\x00\x00", header, b"").size == size


def test_absent_and_empty_are_told_apart() -> None:
    assert decode_header(encode_header(BasicProperties(headers={}, type=""), 0)) == BasicProperties(
        headers={}, type=""
    )


def test_a_short_string_that_is_not_text_passes_unharmed() -> None:
    header = encode_header(BasicProperties(message_id="\udcff"), 0)

    assert header.endswith(b"\x01\xff")
    assert encode_header(decode_header(header), 0) == header


# pamqp as a peer.


def for_pamqp(given_properties: BasicProperties) -> dict[str, Any]:
    """pamqp's names; it has moments for numbers, and leaves out what is empty or zero."""
    values = asdict(given_properties)
    values["message_type"] = values.pop("type")
    if values["timestamp"] is not None:
        values["timestamp"] = datetime.fromtimestamp(values["timestamp"], UTC)
    return values


def test_pamqp_reads_what_we_write() -> None:
    header = pamqp.header.ContentHeader()
    header.unmarshal(encode_header(FULL, 11))

    assert header.body_size == 11
    assert dict(header.properties) == for_pamqp(FULL)


def test_we_write_what_pamqp_writes() -> None:
    # Without headers, whose integers it writes smaller than we do.
    plain = BasicProperties(**{**asdict(FULL), "headers": None, "cluster_id": None})
    values = {name: value for name, value in for_pamqp(plain).items() if value is not None}
    theirs = pamqp.header.ContentHeader(
        body_size=11, properties=pamqp.commands.Basic.Properties(**values)
    )

    assert encode_header(plain, 11) == theirs.marshal()


# Flags.


@pytest.mark.parametrize(
    ("given_properties", "flags"),
    [
        (BasicProperties(), 0),
        (BasicProperties(delivery_mode=1), 0),
        (BasicProperties(delivery_mode=2), PERSISTENT),
        (BasicProperties(content_type="a/b", content_encoding="x", delivery_mode=2), PERSISTENT),
        (BasicProperties(headers={"a": "b"}, delivery_mode=2), PERSISTENT),
        (BasicProperties(expiration="100"), EXPIRES),
        (BasicProperties(priority=5), PRIORITY),
        (BasicProperties(priority=0), 0),
        (BasicProperties(headers={"CC": ["a"]}), SENDER_SELECTED),
        (BasicProperties(headers={"BCC": ["a"]}), SENDER_SELECTED),
        (BasicProperties(headers={"ACC": ["a"]}), 0),
        (BasicProperties(message_id="\x02CC"), 0),
        (FULL, PERSISTENT | EXPIRES | PRIORITY),
    ],
)
def test_flags_say_what_drivers_ask(given_properties: BasicProperties, flags: int) -> None:
    assert message_flags(encode_header(given_properties, 3)) == flags


@given(properties)
def test_flags_agree_with_the_properties(given_properties: BasicProperties) -> None:
    flags = message_flags(encode_header(given_properties, 3))

    assert bool(flags & PERSISTENT) == (given_properties.delivery_mode == 2)
    assert bool(flags & EXPIRES) == (given_properties.expiration is not None)
    assert bool(flags & PRIORITY) == bool(given_properties.priority)


# Bad input.

FULL_HEADER = encode_header(FULL, 3)


@pytest.mark.parametrize("length", range(len(FULL_HEADER)))
def test_a_header_cut_anywhere_is_refused(length: int) -> None:
    with pytest.raises(WireSyntaxError):
        message_flags(FULL_HEADER[:length])
    with pytest.raises(WireSyntaxError):
        decode_header(FULL_HEADER[:length])


def test_bytes_after_the_last_property_are_refused() -> None:
    with pytest.raises(WireSyntaxError, match="properties take"):
        message_flags(FULL_HEADER + b"\x00")
    with pytest.raises(WireSyntaxError, match="properties take"):
        decode_header(FULL_HEADER + b"\x00")


def test_a_header_of_another_class_is_out_of_place() -> None:
    header = b"\x00\x32" + FULL_HEADER[2:]

    with pytest.raises(UnexpectedFrame, match="class 60, got one for class 50"):
        message_flags(header)
    with pytest.raises(UnexpectedFrame, match="class 60, got one for class 50"):
        decode_header(header)


@given(st.binary(max_size=120))
def test_any_bytes_are_read_or_refused_and_both_ways_agree(tail: bytes) -> None:
    header = b"\x00\x3c" + bytes(10) + tail
    try:
        decoded = decode_header(header)
    except WireSyntaxError:
        try:
            message_flags(header)
        except WireSyntaxError:
            pass
        else:
            # The walk does not look into the headers table; everything else it must have seen.
            assert header[12] & 0x20
        return
    flags = message_flags(header)
    assert bool(flags & PERSISTENT) == (decoded.delivery_mode == 2)


@pytest.mark.parametrize(
    "given_properties",
    [BasicProperties(priority=256), BasicProperties(timestamp=-1), BasicProperties(type="x" * 256)],
)
def test_what_does_not_fit_cannot_be_written(given_properties: BasicProperties) -> None:
    with pytest.raises(WireSyntaxError):
        encode_header(given_properties, 0)


# Routes.


@given(shortstrs, shortstrs)
def test_a_route_is_two_short_strings(exchange: str, routing_key: str) -> None:
    route = encode_route(exchange, routing_key)
    message = Message(route, b"", b"")

    assert decode_route(route) == (exchange, routing_key)
    assert (message.exchange, message.routing_key) == (exchange, routing_key)


def test_the_golden_bytes_of_a_route() -> None:
    assert encode_route("amq.topic", "a.b") == b"\x09amq.topic\x03a.b"


@pytest.mark.parametrize("route", [b"", b"\x01", b"\x01a", b"\x01a\x02b", b"\x00\x00x"])
def test_a_malformed_route_is_refused(route: bytes) -> None:
    with pytest.raises(WireSyntaxError):
        decode_route(route)
