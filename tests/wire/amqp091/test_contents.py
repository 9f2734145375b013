"""Content headers and routes: read as they were written, and as others read them."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.header import ContentHeader

from penstock.core.errors import WireSyntaxError
from penstock.wire.amqp091.contents import (
    Properties,
    read_header,
    read_route,
    short_string,
    write_header,
    write_route,
)

texts = st.text(max_size=40)
optional = st.none() | texts
names = st.text(min_size=1, max_size=20)
values = texts | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats(allow_nan=False)
properties = st.builds(
    Properties,
    content_type=optional,
    headers=st.none() | st.dictionaries(names, values, min_size=1),
    persistent=st.booleans(),
    priority=st.none() | st.integers(1, 255),
    correlation_id=optional,
    reply_to=optional,
    expiration=optional,
    message_id=optional,
    timestamp=st.none() | st.integers(0, 2**40),
    content_encoding=optional,
    type=optional,
    user_id=optional,
    app_id=optional,
)


@given(properties)
def test_properties_are_read_as_they_were_written(said: Properties) -> None:
    assert read_header(write_header(0, said)) == said


def test_properties_are_written_as_others_read_them() -> None:
    said = Properties("text/plain", {"a": "b", "n": -7}, True, 3, "c", "r", "60000", "m", 17)
    header = ContentHeader()
    header.unmarshal(write_header(5, said))

    found = header.properties
    assert (header.body_size, found.content_type, found.headers) == (5, "text/plain", said.headers)
    assert (found.delivery_mode, found.priority, found.correlation_id) == (2, 3, "c")
    assert (found.reply_to, found.expiration, found.message_id) == ("r", "60000", "m")
    assert found.timestamp == datetime.fromtimestamp(17, UTC)


@given(st.binary(max_size=80))
def test_properties_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(WireSyntaxError):
        read_header(data)


@pytest.mark.parametrize("value", [2**64, object(), "\ud800"], ids=["number", "object", "text"])
def test_a_header_that_cannot_be_written_is_refused(value: Any) -> None:
    with pytest.raises(WireSyntaxError):
        write_header(0, Properties(headers={"weight": value}))


@given(texts, texts)
def test_a_route_is_read_as_it_was_written(exchange: str, key: str) -> None:
    assert read_route(write_route(exchange, key)) == (exchange, key)


@given(st.binary(max_size=12))
def test_a_route_is_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(WireSyntaxError):
        exchange, key = read_route(data)
        assert write_route(exchange, key) == data


def test_a_name_that_cannot_be_sent_says_which() -> None:
    with pytest.raises(WireSyntaxError, match=r"routing_key: 'x+' is 256 bytes long"):
        short_string("x" * 256, "routing_key")
    with pytest.raises(WireSyntaxError, match=r"exchange: .* UTF-8"):
        short_string("\ud800", "exchange")


def test_what_is_not_text_passes_unharmed() -> None:
    text = b"\xff\xfe".decode("utf-8", "surrogateescape")

    assert read_header(write_header(0, Properties(reply_to=text))).reply_to == text
