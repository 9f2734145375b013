"""What a stream of packets may not hold, and the reason its sender is given."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.wire.mqtt import packets
from penstock.wire.mqtt.fields import write_varint
from penstock.wire.mqtt.reader import MAX_BUFFERED_BYTES, PacketReader
from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode


class Counting:
    """A handler that only counts how often it is called."""

    def __init__(self) -> None:
        self.calls = 0

    def on_publish(
        self, first: int, topic: bytes, number: int, properties: bytes, payload: bytes
    ) -> None:
        self.calls += 1

    def on_publish_run(
        self, first: int, topic: bytes, numbers: list[int], payloads: list[bytes]
    ) -> None:
        self.calls += len(payloads)

    def on_pubacks(self, numbers: Sequence[int]) -> None:
        self.calls += len(numbers)

    def on_large_publish(
        self, first: int, topic: bytes, number: int, properties: bytes, size: int
    ) -> None:
        self.calls += 1

    def on_payload(self, piece: memoryview, more: bool) -> None:
        self.calls += 1

    def on_acknowledgement(self, kind: int, number: int, reason: int, properties: bytes) -> None:
        self.calls += 1

    def on_packet(self, kind: int, flags: int, body: bytes) -> None:
        self.calls += 1


def refusal(data: bytes, version: int, limit: int = 1 << 28, large: int = 64) -> ReasonCode:
    """Why the first packet of `data` is refused; its handler must not have heard of it."""
    handler = Counting()
    reader = PacketReader(handler, limit, large)
    reader.version = version
    with pytest.raises(MqttError) as caught:
        reader.feed(data)
    assert handler.calls == 0
    return caught.value.reason


BOTH = pytest.mark.parametrize("version", [4, 5])
#: What comes after a packet must not be taken for what is missing in it.
NEXT = pytest.mark.parametrize("following", [b"", b"\xc0\x00" * 200, b"\x40\x02\x00\x01" * 100])
MALFORMED = ReasonCode.MALFORMED_PACKET


@BOTH
def test_a_remaining_length_of_five_bytes(version: int) -> None:
    assert refusal(b"\x30\x80\x80\x80\x80", version) is MALFORMED


@BOTH
def test_a_packet_over_the_limit_as_soon_as_its_length_is_known(version: int) -> None:
    assert refusal(b"\x30\xc7\x01", version, limit=201) is ReasonCode.PACKET_TOO_LARGE


def test_the_limit_counts_the_whole_packet() -> None:
    reader = PacketReader(Counting(), 202, 1024)

    reader.feed(packets.encode_publish(0x30, b"t", 0, None, bytes(196)))

    assert refusal(packets.encode_publish(0x30, b"t", 0, None, bytes(197)), 4, 202) is (
        ReasonCode.PACKET_TOO_LARGE
    )


@BOTH
def test_a_packet_that_must_be_held_whole_and_is_too_large_for_that(version: int) -> None:
    assert (
        refusal(b"\x82" + write_varint(MAX_BUFFERED_BYTES + 1), version)
        is ReasonCode.PACKET_TOO_LARGE
    )


def test_properties_of_a_publish_too_large_to_hold() -> None:
    data = (
        b"\x30"
        + write_varint(MAX_BUFFERED_BYTES * 2)
        + b"\x00\x01t"
        + write_varint(MAX_BUFFERED_BYTES)
    )

    assert refusal(data, 5) is ReasonCode.PACKET_TOO_LARGE


def test_a_length_longer_than_it_needs_to_be_in_mqtt_5() -> None:
    assert refusal(b"\xc0\x80\x00", 5) is MALFORMED


def test_a_length_longer_than_it_needs_to_be_was_allowed_before() -> None:
    reader = PacketReader(Counting(), 100, 100)

    reader.feed(b"\xc0\x80\x80\x80\x00")

    assert reader.waiting == 0


@BOTH
@pytest.mark.parametrize(
    "first",
    [
        *(0x00, 0x0F),
        *(0x11, 0x21, 0x41, 0x52, 0x60, 0x63, 0x72),
        *(0x80, 0x83, 0x91, 0xA0, 0xA6, 0xB1, 0xC1, 0xD8, 0xE2, 0xF1),
    ],
)
def test_reserved_kinds_and_flags(first: int, version: int) -> None:
    assert refusal(bytes((first, 2, 0, 1)), version) is MALFORMED


def test_auth_before_mqtt_5() -> None:
    assert refusal(b"\xf0\x00", 4) is MALFORMED


@BOTH
@pytest.mark.parametrize("first", [0x36, 0x37, 0x3E, 0x3F])
def test_a_publish_of_qos_3(first: int, version: int) -> None:
    assert refusal(bytes((first, 6)) + b"\x00\x01t\x00\x01\x00", version) is MALFORMED


@BOTH
@pytest.mark.parametrize("first", [0x38, 0x39])
def test_a_duplicate_of_qos_0(first: int, version: int) -> None:
    assert refusal(bytes((first, 4)) + b"\x00\x01t\x00", version) is MALFORMED


@BOTH
@pytest.mark.parametrize("size", [1, 100])
def test_a_publish_with_packet_identifier_0(size: int, version: int) -> None:
    data = packets.encode_publish(0x32, b"t", 0, b"\x00" if version == 5 else None, bytes(size))

    assert refusal(data, version) is ReasonCode.PROTOCOL_ERROR


@BOTH
@pytest.mark.parametrize("first", [0x40, 0x50, 0x62, 0x70])
def test_an_acknowledgement_of_packet_identifier_0(first: int, version: int) -> None:
    assert refusal(bytes((first, 2, 0, 0)), version) is ReasonCode.PROTOCOL_ERROR


@BOTH
@pytest.mark.parametrize(
    "data",
    [
        b"\x30\x00",
        b"\x30\x01\x00",
        b"\x30\x03\x00\x02t",
        b"\x30\x03\xff\xfft",
        b"\x32\x03\x00\x01t",
        b"\x32\x04\x00\x01t\x00",
        b"\x30\x64\x00\xff" + b"t" * 98,
        b"\x32\x64\x00\x61" + b"t" * 98,
    ],
)
@NEXT
@pytest.mark.parametrize("large", [0, 64])
def test_a_publish_too_short_for_its_fields(
    data: bytes, large: int, following: bytes, version: int
) -> None:
    assert refusal(data + following, version, large=large) is MALFORMED


@pytest.mark.parametrize(
    "data",
    [
        b"\x30\x03\x00\x01t",
        b"\x32\x05\x00\x01t\x00\x01",
        b"\x30\x04\x00\x01t\x01",
        b"\x30\x04\x00\x01t\x80",
        b"\x30\x06\x00\x01t\x80\x80\x80",
        b"\x30\x07\x00\x01t\x80\x80\x80\x80",
        b"\x30\x06\x00\x01t\x80\x00\x00",
        b"\x30\x06\x00\x01t\x03ab",
    ],
)
@NEXT
@pytest.mark.parametrize("large", [0, 64])
def test_a_publish_too_short_for_its_properties(data: bytes, large: int, following: bytes) -> None:
    assert refusal(data + following, 5, large=large) is MALFORMED


@BOTH
@pytest.mark.parametrize(
    "topic",
    [
        b"\xff",
        b"a\xc3",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"a\x00b",
    ],
)
@pytest.mark.parametrize("size", [1, 100])
def test_a_topic_that_is_not_text(topic: bytes, size: int, version: int) -> None:
    data = packets.encode_publish(0x30, topic, 0, b"\x00" if version == 5 else None, bytes(size))

    assert refusal(data, version) is MALFORMED


@BOTH
@pytest.mark.parametrize("topic", [b"#", b"+", b"a/+/b", b"a/#", b"a+", b"#a"])
def test_a_wildcard_in_a_topic(topic: bytes, version: int) -> None:
    data = packets.encode_publish(0x30, topic, 0, b"\x00" if version == 5 else None, b"")

    assert refusal(data, version) is ReasonCode.TOPIC_NAME_INVALID


def test_an_empty_topic_before_mqtt_5() -> None:
    assert refusal(b"\x30\x03\x00\x00!", 4) is ReasonCode.TOPIC_NAME_INVALID


@pytest.mark.parametrize("size", [0, 1])
@BOTH
def test_an_acknowledgement_too_short_for_its_number(size: int, version: int) -> None:
    assert refusal(bytes((0x40, size)) + bytes(size), version) is MALFORMED


def test_an_acknowledgement_with_a_reason_before_mqtt_5() -> None:
    assert refusal(b"\x40\x03\x00\x01\x00", 4) is MALFORMED


@pytest.mark.parametrize(
    ("first", "reason"), [(0x40, 0x92), (0x50, 0x01), (0x62, 0x10), (0x70, 0x80), (0x40, 0xFF)]
)
def test_an_acknowledgement_with_a_reason_of_another_packet(first: int, reason: int) -> None:
    assert refusal(bytes((first, 3, 0, 1, reason)), 5) is ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize("properties", [b"\x01", b"\x00\x00", b"\x80", b"\x05\x1f\x00\x00"])
def test_an_acknowledgement_whose_properties_do_not_fill_it(properties: bytes) -> None:
    body = b"\x00\x01\x00" + properties

    assert refusal(bytes((0x40, len(body))) + body, 5) is MALFORMED


@BOTH
def test_a_ping_with_a_body(version: int) -> None:
    assert refusal(b"\xc0\x01!", version) is MALFORMED
