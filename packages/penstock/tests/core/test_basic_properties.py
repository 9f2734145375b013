"""What cannot be written or read is refused with its reason; the bytes are in `tests/broker`."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.basic_properties import (
    PERSISTENT,
    TRANSIENT,
    BasicProperties,
    decode_route,
    encode_header,
    encode_route,
    encode_shortstr,
)
from penstock.core.errors import WireSyntaxError


@pytest.mark.parametrize("value", [2**64, object(), "\ud800"], ids=["number", "object", "text"])
def test_headers_that_cannot_be_written_are_refused(value: Any) -> None:
    with pytest.raises(WireSyntaxError):
        encode_header(BasicProperties(headers={"weight": value}), 0)


@given(st.binary(max_size=12))
def test_a_route_is_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(WireSyntaxError):
        assert encode_route(*decode_route(data)) == data


def test_a_name_that_cannot_be_sent_says_which() -> None:
    with pytest.raises(WireSyntaxError, match=r"routing_key: 'x+' is 256 bytes long"):
        encode_shortstr("x" * 256, "routing_key")
    with pytest.raises(WireSyntaxError, match=r"exchange: .* UTF-8"):
        encode_shortstr("\ud800", "exchange")


@pytest.mark.parametrize(("mode", "kept"), [(None, False), (TRANSIENT, False), (PERSISTENT, True)])
def test_a_message_is_kept_only_if_it_says_so(mode: int | None, kept: bool) -> None:
    assert BasicProperties(delivery_mode=mode).persistent is kept
