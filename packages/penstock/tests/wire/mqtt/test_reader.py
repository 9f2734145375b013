"""Packets out of a stream that may be cut anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire.mqtt import packets as encode
from penstock.wire.mqtt.fields import PUBACK, PUBCOMP, PUBREC, PUBREL
from penstock.wire.mqtt.properties import MqttProperty, encode_properties
from penstock.wire.mqtt.reader import MAX_CACHED_TOPICS, PacketReader
from penstock.wire.mqtt.reason_codes import MqttError

LIMIT = 4096
LARGE = 64
Event = tuple[Any, ...]


class Noted:
    """A handler that notes what it is told; the pieces of a payload as one."""

    def __init__(self, version: int = 4, limit: int = LIMIT, large: int = LARGE) -> None:
        self.events: list[Event] = []
        self.pieces: list[bytes] = []
        self.stop_at: str | None = None
        self.reader = PacketReader(self, limit, large)
        self.reader.version = version

    def feed(self, *reads: bytes) -> list[Event]:
        for read in reads:
            self.reader.feed(read)
        return self.events

    def _note(self, *event: Any) -> None:
        self.events.append(event)
        if event[0] == self.stop_at:
            self.reader.stopped = True

    def on_publish(
        self, first: int, topic: bytes, number: int, properties: bytes, payload: bytes
    ) -> None:
        self._note("publish", first, topic, number, properties, payload)

    def on_publish_run(
        self, first: int, topic: bytes, numbers: list[int], payloads: list[bytes]
    ) -> None:
        assert 1 < len(numbers) == len(payloads)
        for number, payload in zip(numbers, payloads, strict=True):
            self.on_publish(first, topic, number, b"", payload)

    def on_pubacks(self, numbers: Sequence[int]) -> None:
        assert len(numbers) > 1
        for number in numbers:
            self.on_acknowledgement(PUBACK, number, 0, b"")

    def on_large_publish(
        self, first: int, topic: bytes, number: int, properties: bytes, size: int
    ) -> None:
        self._note("large", first, topic, number, properties, size)

    def on_payload(self, piece: memoryview, more: bool) -> None:
        self.pieces.append(bytes(piece))
        if not more:
            self._note("payload", b"".join(self.pieces))
            self.pieces.clear()

    def on_acknowledgement(self, kind: int, number: int, reason: int, properties: bytes) -> None:
        self._note("acknowledgement", kind, number, reason, properties)

    def on_packet(self, kind: int, flags: int, body: bytes) -> None:
        self._note("packet", kind, flags, body)


def told(version: int, *reads: bytes) -> tuple[list[Event], list[bytes], str]:
    """All a handler learns from these reads, in the end by an error."""
    noted = Noted(version)
    try:
        noted.feed(*reads)
    except MqttError as error:
        return noted.events, noted.pieces, f"{error.reason.name}: {error}"
    return noted.events, noted.pieces, ""


# Whole packets.


def test_a_publish_of_qos_0_has_no_number() -> None:
    assert Noted().feed(b"\x30\x07\x00\x03a/bhi") == [("publish", 0x30, b"a/b", 0, b"", b"hi")]


@pytest.mark.parametrize("kind", [6, 8, 10])  # PUBREL, SUBSCRIBE, UNSUBSCRIBE
def test_mqtt_3_1_repeats_with_dup(kind: int) -> None:
    events = Noted(3).feed(bytes((kind << 4 | 10, 2, 0, 7)))
    if kind == PUBREL:
        assert events == [("acknowledgement", PUBREL, 7, 0, b"")]
    else:
        assert events == [("packet", kind, 10, b"\0\7")]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("kind", [6, 8, 10])
def test_later_versions_do_not(kind: int, version: int) -> None:
    with pytest.raises(MqttError):
        Noted(version).feed(bytes((kind << 4 | 10, 2, 0, 7)))


def test_a_publish_of_qos_1_has_its_number_and_flags() -> None:
    assert Noted().feed(b"\x3b\x08\x00\x03a/b\x01\x02!") == [
        ("publish", 0x3B, b"a/b", 258, b"", b"!")
    ]


def test_properties_of_a_publish_come_raw_and_without_their_length() -> None:
    data = b"\x34\x0e\x00\x03a/b\x00\x07\x05\x02\x00\x00\x00\x3c!"

    assert Noted(5).feed(data) == [("publish", 0x34, b"a/b", 7, b"\x02\x00\x00\x00\x3c", b"!")]


def test_properties_of_more_than_127_bytes() -> None:
    properties = encode_properties({MqttProperty.USER_PROPERTY: [("k", "v" * 200)]})
    data = encode.encode_publish(0x30, b"t", 0, properties, b"!")

    assert Noted(5, large=1024).feed(data) == [("publish", 0x30, b"t", 0, properties[2:], b"!")]


def test_before_mqtt_5_what_follows_the_topic_is_payload() -> None:
    assert Noted(4).feed(b"\x30\x05\x00\x01t\x00!") == [("publish", 0x30, b"t", 0, b"", b"\x00!")]


def test_a_payload_may_be_empty() -> None:
    assert Noted().feed(b"\x31\x03\x00\x01t") == [("publish", 0x31, b"t", 0, b"", b"")]


def test_an_empty_topic_passes_in_mqtt_5_for_its_alias_to_say() -> None:
    assert Noted(5).feed(b"\x30\x06\x00\x00\x03\x23\x00\x01") == [
        ("publish", 0x30, b"", 0, b"\x23\x00\x01", b"")
    ]


@pytest.mark.parametrize("kind", [PUBACK, PUBREC, PUBREL, PUBCOMP])
@pytest.mark.parametrize("version", [4, 5])
def test_an_acknowledgement_of_two_bytes_is_a_success(kind: int, version: int) -> None:
    data = encode.encode_acknowledgement(kind, 258)

    assert Noted(version).feed(data) == [("acknowledgement", kind, 258, 0, b"")]


def test_an_acknowledgement_may_give_a_reason() -> None:
    assert Noted(5).feed(b"\x40\x03\x00\x07\x10") == [("acknowledgement", PUBACK, 7, 0x10, b"")]


def test_an_acknowledgement_may_give_a_reason_and_properties() -> None:
    data = b"\x62\x08\x00\x07\x92\x04\x1f\x00\x01?"

    assert Noted(5).feed(data) == [("acknowledgement", PUBREL, 7, 0x92, b"\x1f\x00\x01?")]


def test_other_packets_come_as_their_bodies() -> None:
    assert Noted(5).feed(b"\xc0\x00\x82\x03abc\xe0\x01\x04\xf0\x00") == [
        ("packet", 12, 0, b""),
        ("packet", 8, 2, b"abc"),
        ("packet", 14, 0, b"\x04"),
        ("packet", 15, 0, b""),
    ]


def test_a_read_may_bring_many_packets() -> None:
    packets = [encode.encode_publish(0x32, b"t", n, None, b"%d" % n) for n in range(1, 100)]

    events = Noted().feed(b"".join(packets))

    assert events == [("publish", 0x32, b"t", n, b"", b"%d" % n) for n in range(1, 100)]


@pytest.mark.parametrize("size", [0, 124, 125, 16_380, 16_381, 2_097_148, 2_097_149])
def test_every_length_of_the_remaining_length(size: int) -> None:
    data = encode.encode_publish(0x30, b"t", 0, None, bytes(size))
    noted = Noted(limit=1 << 22, large=1 << 22)

    assert noted.feed(data[:3], data[3:]) == [("publish", 0x30, b"t", 0, b"", bytes(size))]


def test_the_version_holds_from_the_packet_after_the_one_that_settled_it() -> None:
    class Settling(Noted):
        def on_packet(self, kind: int, flags: int, body: bytes) -> None:
            self.reader.version = 5

    assert Settling().feed(b"\x10\x00\x30\x05\x00\x01t\x00!") == [
        ("publish", 0x30, b"t", 0, b"", b"!")
    ]


# Large payloads.


def test_a_large_payload_comes_as_it_arrives() -> None:
    data = encode.encode_publish(0x32, b"t", 7, None, b"x" * 100)
    noted = Noted()

    noted.feed(data[:20])
    assert noted.events == [("large", 0x32, b"t", 7, b"", 100)]
    assert noted.pieces == [b"x" * 13]

    noted.feed(data[20:50])
    assert noted.pieces == [b"x" * 13, b"x" * 30]
    assert noted.reader.waiting == 0

    noted.feed(data[50:] + b"\xc0\x00")
    assert noted.events[1:] == [("payload", b"x" * 100), ("packet", 12, 0, b"")]


def test_whether_a_payload_is_large_does_not_depend_on_its_topic_and_properties() -> None:
    properties = encode_properties({MqttProperty.USER_PROPERTY: [("k", "v" * 200)]})
    data = encode.encode_publish(0x30, b"t" * 100, 0, properties, b"x" * LARGE)

    assert Noted(5).feed(data[:50], data[50:]) == [
        ("publish", 0x30, b"t" * 100, 0, properties[2:], b"x" * LARGE)
    ]


def test_a_large_payload_that_has_arrived_is_one_piece() -> None:
    data = encode.encode_publish(0x30, b"t", 0, b"\x00", b"x" * 100)

    assert Noted(5).feed(data) == [("large", 0x30, b"t", 0, b"", 100), ("payload", b"x" * 100)]


# Stopping.


def test_a_stopped_reader_keeps_what_comes_until_it_may_go_on() -> None:
    noted = Noted()
    noted.stop_at = "packet"

    noted.feed(b"\x10\x01!\x40\x02\x00\x01", b"\x40\x02\x00\x02")
    assert noted.events == [("packet", 1, 0, b"!")]
    assert noted.reader.waiting == 8

    noted.reader.stopped = False
    noted.feed(b"")
    assert [event[2] for event in noted.events[1:]] == [1, 2]
    assert noted.reader.waiting == 0


def test_a_reader_stopped_by_a_large_publish_keeps_its_payload() -> None:
    noted = Noted()
    noted.stop_at = "large"
    data = encode.encode_publish(0x30, b"t", 0, None, b"x" * 100)

    noted.feed(data[:50], data[50:])
    assert not noted.pieces

    noted.reader.stopped = False
    assert noted.feed(b"")[1:] == [("payload", b"x" * 100)]


@given(st.integers(1, 40), st.integers(1, 40))
def test_stopping_loses_nothing(cut: int, other: int) -> None:
    data = b"\xc0\x00" + encode.encode_publish(0x30, b"t", 0, None, b"x" * 70) + b"\x40\x02\x00\x01"
    expected = Noted().feed(data)
    noted = Noted()

    for stop_at in ("packet", "large", "payload", "acknowledgement"):
        noted.stop_at = stop_at
        noted.feed(data[:cut], data[cut : cut + other], data[cut + other :])
        data = b""
        assert noted.events[-1][0] == stop_at
        noted.reader.stopped = False

    assert noted.events == expected


# Any cut, any bytes.

numbers = st.integers(1, 0xFFFF)
topics = st.sampled_from([b"t", b"sensors/7/report", "größe/°".encode(), b"a" * 90])
payloads = st.binary(max_size=2 * LARGE)
blocks = st.sampled_from([b"\x00", b"\x03\x23\x00\x01", b"\x88\x01\x26\x00\x80" + b"k" * 131])


#: Packets that are passed on together if they come in a row.
RUNS = [b"\x40\x02\x00\x01", b"\x30\x05\x00\x01t\x00!", b"\x32\x06\x00\x01t\x00\x07\x00"]


@st.composite
def streams(draw: st.DrawFn, version: int) -> bytes:
    """Packets, mostly good ones."""
    properties = blocks if version == 5 else st.none()
    first = st.sampled_from([0x30, 0x31, 0x32, 0x3B, 0x34, 0x3C])
    one = st.one_of(
        st.builds(encode.encode_publish, first, topics, numbers, properties, payloads),
        st.builds(encode.encode_acknowledgement, st.sampled_from([4, 5, 6, 7]), numbers),
        st.builds(bytes.__mul__, st.sampled_from(RUNS), st.integers(2, 3)),
        st.sampled_from([b"\xc0\x00", b"\xe0\x00", b"\x82\x03abc", b"\x50\x03\x00\x07\x80"]),
        st.binary(min_size=1, max_size=12),
    )
    return b"".join(draw(st.lists(one, max_size=8)))


@settings(max_examples=300)
@given(st.data(), st.sampled_from([3, 4, 5]))
def test_how_a_stream_is_cut_makes_no_difference(data: st.DataObject, version: int) -> None:
    stream = data.draw(streams(version))
    places = st.lists(st.integers(0, len(stream)), max_size=10)
    cuts = [0, *sorted(data.draw(places)), len(stream)]
    events, pieces, error = told(version, stream)

    in_parts = told(version, *(stream[a:b] for a, b in pairwise(cuts)))
    by_bytes = told(version, *(stream[n : n + 1] for n in range(len(stream))))

    for other_events, other_pieces, other_error in (in_parts, by_bytes):
        assert other_events == events
        assert b"".join(other_pieces) == b"".join(pieces)
        assert other_error == error


@settings(max_examples=500)
@given(st.binary(max_size=200), st.sampled_from([3, 4, 5]))
def test_whatever_comes_nothing_but_an_mqtt_error_is_raised(data: bytes, version: int) -> None:
    told(version, data)


# What is remembered.


def test_topics_remembered_as_good_are_bounded() -> None:
    noted = Noted()
    for n in range(MAX_CACHED_TOPICS * 2 + 10):
        noted.feed(encode.encode_publish(0x30, b"t/%d" % n, 0, None, b""))
        assert len(noted.reader._known) <= MAX_CACHED_TOPICS

    noted.feed(encode.encode_publish(0x30, b"t" * 2000, 0, None, b""))

    assert max(map(len, noted.reader._known)) < 100
    assert len(noted.events) == MAX_CACHED_TOPICS * 2 + 11
