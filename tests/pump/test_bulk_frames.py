"""Announcements as bytes: what pamqp reads from them is what was said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body as pamqp_body
from pamqp import commands, frame, header

from penstock.core.errors import FrameError
from penstock.pump.bulk.frames import Answers, method, publish, read_method

NAMES = st.text(st.characters(codec="utf-8"), max_size=20)
HEADERS = st.dictionaries(NAMES, NAMES | st.integers(-(2**31), 2**31 - 1), max_size=5)


def read(data: bytes) -> list[Any]:
    found = []
    while data:
        used, _, value = frame.unmarshal(data)
        found.append(value)
        data = data[used:]
    return found


@given(st.binary(max_size=300), NAMES, NAMES, HEADERS)
def test_another_reader_finds_what_was_written(
    body: bytes, exchange: str, key: str, headers: dict[str, Any]
) -> None:
    route = (exchange, key)
    data = publish(1, 100, route, (body, "text/plain"), headers, "id-1", 1.5)
    first, second, *rest = read(data)
    assert isinstance(first, commands.Basic.Publish)
    assert (first.exchange, first.routing_key) == route
    assert isinstance(second, header.ContentHeader)
    told = second.properties
    assert second.body_size == len(body)
    assert (told.headers or {}) == headers
    assert (told.content_type, told.delivery_mode, told.message_id) == ("text/plain", 2, "id-1")
    assert told.expiration == "1500"
    pieces = [each.value for each in rest if isinstance(each, pamqp_body.ContentBody)]
    assert b"".join(pieces) == body
    assert all(len(piece) <= 92 for piece in pieces)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=20), st.integers(1, 40))
def test_answers_are_read_whatever_pieces_they_come_in(tags: list[int], size: int) -> None:
    data = b"".join(method(1, commands.Basic.Ack(tag, False)) for tag in tags)
    answers = Answers()
    found = [
        each
        for start in range(0, len(data), size)
        for each in answers.feed(data[start : start + size])
    ]
    read_tags = []
    for each in found:
        ack = read_method(each.payload)
        assert isinstance(ack, commands.Basic.Ack)
        read_tags.append(ack.delivery_tag)
    assert read_tags == tags


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(FrameError):
        Answers().feed(b"\x01\x00\x01\x00\x00\x00\x02xxyzzzzzz")
    with pytest.raises(FrameError):
        read_method(b"\xff\xff\xff\xff")
