"""The offset a stream adds to a content header."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.contract import Message
from penstock.core.basic_properties import BasicProperties, decode_header, encode_header
from penstock.core.errors import WireSyntaxError
from penstock.destinations.stream import add_offset_header
from penstock_spark.streams.byte_array import ByteArray
from penstock_spark.streams.offsets import find_offsets, pop_offset

names = st.text("abyz", min_size=1, max_size=6)
values = st.one_of(
    st.text(max_size=20),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.none(),
    st.just("\x0fx-stream-offsetl12345678"),
)
properties = st.builds(
    BasicProperties,
    content_type=st.none() | names,
    content_encoding=st.none() | names,
    headers=st.none() | st.dictionaries(names, values, min_size=1, max_size=4),
    delivery_mode=st.none() | st.integers(1, 2),
    message_id=st.none() | names,
    timestamp=st.none() | st.integers(0, 2**40),
)
offsets = st.integers(0, 2**62)


@given(properties, offsets)
def test_the_offset_comes_off_and_leaves_the_header_as_it_was_published(
    published: BasicProperties, offset: int
) -> None:
    header = encode_header(published, 5)
    sent = add_offset_header(Message(b"", header, b"12345"), offset)

    assert pop_offset(sent.header) == (offset, header)


@given(properties, offsets)
def test_rabbitmq_sorts_the_offset_in(published: BasicProperties, offset: int) -> None:
    headers: dict[str, Any] = {**(published.headers or {}), "x-stream-offset": offset + 2**40}
    before = encode_header(published, 5)
    published.headers = dict(sorted(headers.items()))

    found, rest = pop_offset(encode_header(published, 5))

    assert found == offset + 2**40
    left = decode_header(rest)
    assert left.headers == decode_header(before).headers or not left.headers
    assert left.message_id == published.message_id


@given(st.lists(st.tuples(properties, offsets), min_size=1, max_size=20), st.booleans())
def test_many_offsets_are_cut_out_as_one_by_one(
    published: list[tuple[BasicProperties, int]], sorted_in: bool
) -> None:
    headers = [_with_offset(each, offset, sorted_in) for each, offset in published]
    stops = np.cumsum([len(each) for each in headers])
    starts = stops - [len(each) for each in headers]
    octets = ByteArray(bytearray(b"".join(headers)))

    cuts = find_offsets(octets, starts, stops)

    if cuts is None:  # not as usual: a smaller number, or the same bytes in a value
        name = b"\x0fx-stream-offset"
        assert any(each.count(name) != 1 or name + b"l" not in each for each in headers)
        assert octets.data == b"".join(headers)
        return
    data, edges = bytes(octets.data), zip(starts, cuts.starts, cuts.stops, stops, strict=True)
    left = [data[start:cut] + data[after:stop] for start, cut, after, stop in edges]
    assert list(zip(cuts.offsets, left, strict=True)) == [pop_offset(each) for each in headers]


def _with_offset(published: BasicProperties, offset: int, sorted_in: bool) -> bytes:
    if not sorted_in:
        return bytes(
            add_offset_header(Message(b"", encode_header(published, 5), b"12345"), offset).header
        )
    named = {**(published.headers or {}), "x-stream-offset": offset + 2**40}
    return encode_header(replace(published, headers=dict(sorted(named.items()))), 5)


@pytest.mark.parametrize("headers", [None, {}, {"a": "x-stream-offset"}])
def test_of_a_plain_queue_nothing_is_cut(headers: dict[str, Any] | None) -> None:
    header = encode_header(BasicProperties(headers=headers), 0)

    assert (
        find_offsets(ByteArray(bytearray(header)), np.array([0]), np.array([len(header)])) is None
    )


@pytest.mark.parametrize("headers", [None, {}, {"a": "x-stream-offset"}])
def test_a_message_of_a_plain_queue_has_no_offset(headers: dict[str, Any] | None) -> None:
    with pytest.raises(WireSyntaxError):
        pop_offset(encode_header(BasicProperties(headers=headers), 0))
