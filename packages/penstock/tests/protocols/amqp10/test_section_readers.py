"""The body of a large message as it comes: the same contents however the message is cut."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.amqp10.incoming_link import (
    FOOTER_MAX_BYTES,
    DataSectionReader,
    RawSectionReader,
)
from penstock.wire.amqp10.codec import encode
from penstock.wire.amqp10.errors import DECODE_ERROR, MESSAGE_TOO_LARGE, LinkFault
from penstock.wire.amqp10.message import DATA, FOOTER, VALUE, section_prefix
from penstock.wire.amqp10.values import Described, Symbol, ULong

#: How a data section may begin: short, in full, by name.
STARTS = (
    section_prefix(DATA),
    b"\x00" + encode(Symbol("amqp:data:binary")),
    b"\x00\x80" + (DATA).to_bytes(8, "big"),
)
footers = st.none() | st.dictionaries(
    st.sampled_from([Symbol("x-a"), Symbol("x-b")]), st.text(max_size=5), max_size=2
)


def pour(payload: bytes, cuts: list[int]) -> tuple[bytes, bytes | None]:
    body = DataSectionReader()
    places = [0, *sorted(min(cut, len(payload)) for cut in cuts), len(payload)]
    content = b""
    for start, stop in pairwise(places):
        content += b"".join(body.feed(memoryview(payload)[start:stop]))
    return content, body.finish()


@given(
    st.lists(st.tuples(st.sampled_from(STARTS), st.binary(max_size=300)), max_size=6),
    footers,
    st.lists(st.integers(0, 2000), max_size=12),
)
def test_the_contents_of_all_sections_come_out_and_the_footer_stays(
    pieces: list[tuple[bytes, bytes]], footer: dict[Any, Any] | None, cuts: list[int]
) -> None:
    payload = b"".join(start + encode(piece) for start, piece in pieces)
    expected = None
    if footer is not None:
        expected = encode(footer)
        payload += section_prefix(FOOTER) + expected
    assert pour(payload, cuts) == (b"".join(piece for _, piece in pieces), expected)


@pytest.mark.parametrize(
    ("payload", "condition"),
    [
        (section_prefix(DATA) + encode(b"abc")[:-1], DECODE_ERROR),
        (section_prefix(DATA)[:2], DECODE_ERROR),
        (section_prefix(DATA) + encode(b"abc") + section_prefix(VALUE) + b"\x40", DECODE_ERROR),
        (section_prefix(DATA) + encode(b"abc") + encode(Described(ULong(1), 1)), None),
        (section_prefix(DATA) + encode(b"abc") + b"\xff", None),
        (
            section_prefix(FOOTER) + encode({Symbol("x"): b"x" * FOOTER_MAX_BYTES}),
            MESSAGE_TOO_LARGE,
        ),
    ],
)
@pytest.mark.parametrize("cuts", [[], list(range(20))])
def test_what_is_no_body_is_refused(payload: bytes, condition: str | None, cuts: list[int]) -> None:
    with pytest.raises(Exception) as caught:
        pour(payload, cuts)
    if condition is not None:
        assert isinstance(caught.value, LinkFault)
        assert caught.value.condition == condition


def test_other_sections_are_kept_as_they_are() -> None:
    body = RawSectionReader()
    assert b"".join(body.feed(memoryview(b"anything"))) == b"anything"
    assert body.finish() is None
