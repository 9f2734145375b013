"""Fuzzes the MQTT codec: the stream of packets, CONNECT, the other packets, properties, topics.

    python packages/penstock/tests/fuzz/fuzz_mqtt.py -runs=1000000

Coverage-guided, by atheris. An input is one choice of what to decode, one of a version, and the
bytes to decode. A decoder may refuse them by `MqttError`; anything else is a finding. What it
accepts must survive being written and read again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["penstock.wire.mqtt"]):
    from penstock.wire.mqtt import packets
    from penstock.wire.mqtt.fields import PUBACK, read_varint, write_varint
    from penstock.wire.mqtt.packets import (
        decode_auth,
        decode_connect,
        decode_disconnect,
        decode_subscribe,
        decode_unsubscribe,
    )
    from penstock.wire.mqtt.properties import (
        decode_properties,
        encode_properties,
        read_properties,
    )
    from penstock.wire.mqtt.reader import PacketReader
    from penstock.wire.mqtt.reason_codes import MqttError
    from penstock.wire.mqtt.topics import (
        check_topic_filter,
        check_topic_name_bytes,
        split_shared_filter,
    )
    from tests import mqtt_wire as wire
    from tests.fuzz_input import pieces, run_fuzzer

VERSIONS = (3, 4, 5)
LIMIT = 4096
LARGE = 16


class Events:
    """Notes what the reader finds; pieces of a payload as the bytes that came."""

    def __init__(self, version: int) -> None:
        self.seen: list[tuple[object, ...]] = []
        self.poured = b""
        self.reader = PacketReader(self, LIMIT, LARGE)
        self.reader.version = version

    def on_publish(
        self, first: int, topic: bytes, number: int, properties: bytes, payload: bytes
    ) -> None:
        assert bool(first & 6) == bool(number)
        assert len(payload) <= LARGE
        self.seen.append((first, topic, number, properties, payload))

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
        assert LARGE < size < LIMIT
        self.seen.append((first, topic, number, properties, size))

    def on_payload(self, piece: memoryview, more: bool) -> None:
        assert piece
        self.poured += piece
        if not more:
            self.seen.append((self.poured,))
            self.poured = b""

    def on_acknowledgement(self, kind: int, number: int, reason: int, properties: bytes) -> None:
        assert number
        self.seen.append((kind, number, reason, properties))

    def on_packet(self, kind: int, flags: int, body: bytes) -> None:
        self.seen.append((kind, flags, body))

    def feed(self, *reads: bytes) -> str:
        try:
            for read in reads:
                self.reader.feed(read)
        except MqttError as error:
            return f"{error.reason.name} {error}"
        return ""


def fuzz_stream(data: bytes, version: int) -> None:
    """Cut in two anywhere, or into many pieces, a stream of packets means the same."""
    cut = data[0] if data else 0
    data = data[1:]
    whole, halved, ground = Events(version), Events(version), Events(version)
    error = whole.feed(data)
    assert halved.feed(data[:cut], data[cut:]) == error
    assert ground.feed(*pieces(data)) == error
    assert whole.seen == halved.seen == ground.seen
    assert whole.poured == halved.poured == ground.poured


def fuzz_publish(data: bytes, version: int) -> None:
    """As `fuzz_stream`, with a length that is right."""
    if len(data) > 2:
        packet = bytes((0x30 | data[0] & 15,)) + write_varint(len(data) - 2) + data[2:]
        fuzz_stream(data[1:2] + packet, version)


def fuzz_connect(data: bytes, version: int) -> None:
    connect = decode_connect(data)
    assert decode_connect(wire.connect_body(connect)) == connect


def fuzz_honest_connect(data: bytes, version: int) -> None:
    name = b"\x00\x06MQIsdp" if version == 3 else b"\x00\x04MQTT"
    fuzz_connect(name + bytes((version,)) + data, version)


def fuzz_subscribe(data: bytes, version: int) -> None:
    number, properties, subscriptions = decode_subscribe(data, version)
    again = _body(wire.subscribe(version, number, subscriptions, properties))
    assert decode_subscribe(again, version) == (number, properties, subscriptions)


def fuzz_unsubscribe(data: bytes, version: int) -> None:
    number, properties, filters = decode_unsubscribe(data, version)
    again = _body(wire.unsubscribe(version, number, filters, properties))
    assert decode_unsubscribe(again, version) == (number, properties, filters)


def fuzz_disconnect(data: bytes, version: int) -> None:
    reason, properties = decode_disconnect(data, version)
    if version == 5:
        again = _body(packets.encode_disconnect(reason, properties))
        assert decode_disconnect(again, 5) == (reason, properties)


def fuzz_auth(data: bytes, version: int) -> None:
    reason, properties = decode_auth(data)
    assert decode_auth(_body(packets.encode_auth(reason, properties))) == (reason, properties)


def fuzz_properties(data: bytes, version: int) -> None:
    kind = data[0] & 15 if data else 0
    properties = decode_properties(data[1:], kind)
    again = encode_properties(properties)
    assert read_properties(again, 0, kind) == (properties, len(again))


def fuzz_varint(data: bytes, version: int) -> None:
    value, end = read_varint(data, 0)
    assert write_varint(value) == data[:end]


def fuzz_topic(data: bytes, version: int) -> None:
    check_topic_filter(split_shared_filter(check_topic_name_bytes(data))[1])


def _body(packet: bytes) -> bytes:
    ((_, body),), rest = wire.split(packet)
    assert not rest
    return body


TARGETS = (
    *(fuzz_stream, fuzz_publish, fuzz_connect, fuzz_honest_connect),
    *(fuzz_subscribe, fuzz_unsubscribe, fuzz_disconnect, fuzz_auth),
    *(fuzz_properties, fuzz_varint, fuzz_topic),
)


def fuzz(data: bytes) -> None:
    if len(data) < 2:
        return
    with suppress(MqttError):
        TARGETS[data[0] % len(TARGETS)](data[2:], VERSIONS[data[1] % len(VERSIONS)])


if __name__ == "__main__":
    run_fuzzer(fuzz)
