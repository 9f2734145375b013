"""Frames and content headers: what is written is read as it was, whatever pieces it comes in."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from penstock.core.errors import ConfigurationError, FrameError, WireSyntaxError
from penstock.jobs.link.address import parse_address
from penstock.jobs.link.contents import Properties, read_header, write_header
from penstock.jobs.link.frames import (
    Content,
    Frames,
    write_ack,
    write_method,
    write_publish,
)

texts = st.none() | st.text(max_size=60)
headers = st.none() | st.dictionaries(
    st.text(min_size=1, max_size=20),
    st.text(max_size=20) | st.integers(-(2**31), 2**31),
    min_size=1,
)
properties = st.builds(
    Properties,
    texts,
    headers,
    st.booleans(),
    st.none() | st.integers(1, 9),
    texts,
    texts,
    texts,
    texts,
    st.none() | st.integers(0, 2**40),
)


@given(properties)
def test_properties_are_read_as_they_were_written(said: Properties) -> None:
    assert read_header(write_header(0, said)) == said


@given(st.binary(min_size=14, max_size=80))
def test_properties_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(WireSyntaxError):
        read_header(data)


def deliver(tag: int, header: bytes, body: bytes, frame_max: int) -> bytes:
    """As a broker writes it: a publish, with the method exchanged."""
    method = commands.Basic.Deliver("me", tag, False, "x", "k")
    publish = write_publish(1, b"\x01x\x01k", header, body, frame_max)
    size = 7 + int.from_bytes(publish[3:7], "big") + 1
    return write_method(1, method) + publish[size:]


@given(
    st.lists(st.binary(max_size=200), max_size=6),
    st.integers(16, 100),
    st.lists(st.integers(1, 60), min_size=1),
)
def test_messages_come_whole_whatever_pieces_they_come_in(
    bodies: list[bytes], frame_max: int, cuts: list[int]
) -> None:
    stream = b"".join(
        deliver(tag, write_header(len(body), Properties("t")), body, frame_max)
        for tag, body in enumerate(bodies, 1)
    )
    frames, found, at, turn = Frames(), [], 0, 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        found += list(frames.feed(stream[at : at + step]))
        at, turn = at + step, turn + 1

    assert [(each.tag, each.body) for each in found if isinstance(each, Content)] == list(
        enumerate(bodies, 1)
    )


def test_an_acknowledgement_is_what_others_write() -> None:
    for multiple in (False, True):
        expected = write_method(3, commands.Basic.Ack(77, multiple))
        assert write_ack(3, 77, multiple=multiple) == expected


def test_what_is_no_frame_is_told() -> None:
    with pytest.raises(FrameError, match="does not speak AMQP 0-9-1"):
        list(Frames().feed(b"AMQP\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))


def test_an_address_has_what_is_usual_where_nothing_is_said() -> None:
    address = parse_address("amqp://me:p%40ss@host/my%2Fplace?heartbeat=5")

    assert (address.host, address.port, address.vhost) == ("host", 5672, "my/place")
    assert (address.user, address.password, address.heartbeat) == ("me", "p@ss", 5)
    assert "p@ss" not in repr(address)
    assert parse_address("amqps://h").port == 5671


@pytest.mark.parametrize("url", ["mqtt://h", "amqp://", "amqp://h:port"])
def test_what_is_no_address_is_refused(url: Any) -> None:
    with pytest.raises(ConfigurationError):
        parse_address(url)
