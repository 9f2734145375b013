"""The press: each message set once, however many it is printed for."""

from __future__ import annotations

import pytest

from penstock.broker.contract import FROM_RETAINED, Message
from penstock.core.basic_properties import (
    BasicProperties,
    encode_header,
    encode_minimal_header,
    encode_route,
)
from penstock.protocols.mqtt import writer as press_module
from penstock.protocols.mqtt.conversion import (
    CORRELATION_HEADER,
    encode_content_header,
)
from penstock.protocols.mqtt.writer import MAX_CACHED_TOPICS, EncodedPacketCache
from penstock.wire.mqtt.properties import MqttProperty
from tests.mqtt_wire import Published, decode_publish, split


def message(key: str = "a.b", body: bytes = b"hello", flags: int = 0) -> Message:
    return Message(
        encode_route("amq.topic", key), encode_minimal_header(len(body), False), body, flags
    )


def read(packet: bytes, version: int) -> Published:
    ((first, body),), rest = split(packet)
    assert not rest
    return decode_publish(first, body, version)


def test_a_message_is_printed_for_each_version() -> None:
    packet_cache = EncodedPacketCache()
    told = message()
    assert read(packet_cache.encode_v4(told), 4) == Published(b"a/b", b"hello")
    assert read(packet_cache.encode_v5(told), 5) == Published(b"a/b", b"hello")


def test_it_is_printed_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    packet_cache = EncodedPacketCache()
    told = message()
    first = packet_cache.encode_v5(told)

    def never(*_: object) -> bytes:
        raise AssertionError("printed again")

    monkeypatch.setattr(press_module, "encode_publish", never)
    assert packet_cache.encode_v5(told) is first


def test_what_is_alike_is_not_the_same() -> None:
    packet_cache = EncodedPacketCache()
    packet_cache.encode_v5(message(body=b"1"))
    assert read(packet_cache.encode_v5(message(body=b"2")), 5).payload == b"2"


def test_properties_are_told_to_5_0_only() -> None:
    packet_cache = EncodedPacketCache()
    header = encode_content_header({MqttProperty.CONTENT_TYPE: "text/plain"}, 0, 5)
    told = Message(encode_route("amq.topic", "a"), header, b"hello")
    assert read(packet_cache.encode_v5(told), 5).properties == {
        MqttProperty.CONTENT_TYPE: "text/plain"
    }
    assert read(packet_cache.encode_v4(told), 4) == Published(b"a", b"hello")


def test_the_properties_of_one_message_are_not_told_of_the_next() -> None:
    packet_cache = EncodedPacketCache()
    header = encode_content_header({MqttProperty.CONTENT_TYPE: "text/plain"}, 0, 5)
    packet_cache.load(Message(encode_route("amq.topic", "a"), header, b"hello"))
    packet_cache.load(message())
    assert packet_cache.properties == {}
    assert packet_cache.encoded == b"\0"


@pytest.mark.parametrize("version", [4, 5])
def test_what_was_kept_is_flagged(version: int) -> None:
    packet_cache = EncodedPacketCache()
    told = message(flags=FROM_RETAINED)
    packet = packet_cache.encode_v4(told) if version == 4 else packet_cache.encode_v5(told)
    assert read(packet, version).retain


@pytest.mark.parametrize("key", ["", "a.#", "a.*", "nul\0"])
def test_a_key_that_is_no_topic_is_not_printed(key: str) -> None:
    packet_cache = EncodedPacketCache()
    told = message(key)
    assert packet_cache.encode_v4(told) == packet_cache.encode_v5(told) == b""


def test_a_key_that_is_no_text_is_not_printed() -> None:
    packet_cache = EncodedPacketCache()
    told = Message(b"\x09amq.topic\x01\xff", encode_minimal_header(5, False), b"hello")
    assert packet_cache.encode_v5(told) == b""


def test_properties_that_cannot_be_told_do_not_stop_the_press() -> None:
    packet_cache = EncodedPacketCache()
    header = encode_header(BasicProperties(headers={CORRELATION_HEADER: b"." * 70_000}), 5)
    told = Message(encode_route("amq.topic", "a"), header, b"hello")
    assert read(packet_cache.encode_v5(told), 5).payload == b"hello"


def test_topics_are_remembered_up_to_a_number() -> None:
    packet_cache = EncodedPacketCache()
    for n in range(MAX_CACHED_TOPICS + 10):
        packet_cache.load(message(f"a.{n}"))
    assert read(packet_cache.encode_v4(message("a.1")), 4).topic == b"a/1"
    assert len(packet_cache._topics) <= MAX_CACHED_TOPICS
