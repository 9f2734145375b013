"""Fuzzes the AMQP 0-9-1 codec: tables, content headers and methods.

    python packages/penstock/tests/fuzz/fuzz_amqp091.py -runs=1000000

Coverage-guided, by atheris. An input is one choice of what to decode and the bytes to decode. A
decoder may refuse them by the errors it promises; anything else is a finding. What it accepts must
survive being written and read again.
"""

from __future__ import annotations

from contextlib import suppress

import atheris

with atheris.instrument_imports(
    include=["penstock.wire.amqp091", "penstock.core", "penstock.broker.content_header"]
):
    from penstock.broker.content_header import message_flags
    from penstock.broker.contract import EXPIRES, PERSISTENT, PRIORITY, SENDER_SELECTED
    from penstock.core.basic_properties import decode_header, decode_route, encode_header
    from penstock.core.errors import CommandInvalid, FrameError, UnexpectedFrame, WireSyntaxError
    from penstock.core.field_table import decode_table, encode_table
    from penstock.wire.amqp091.frames import MAX_RUN_PUBLISHES, Amqp091FrameReader
    from penstock.wire.amqp091.methods import METHODS, decode_method, encode_method
    from tests.fuzz_input import run_fuzzer

NUMBERS = sorted(METHODS)


def fuzz_table(data: bytes) -> None:
    table, end = decode_table(data)
    assert end <= len(data)
    again = encode_table(table)
    assert encode_table(decode_table(again)[0]) == again


def fuzz_array(data: bytes) -> None:
    array = len(data).to_bytes(4, "big") + data
    fuzz_table((len(array) + 3).to_bytes(4, "big") + b"\x01aA" + array)


def fuzz_honest_table(data: bytes) -> None:
    fuzz_table(len(data).to_bytes(4, "big") + data)


def fuzz_header(data: bytes) -> None:
    header = b"\x00\x3c" + data
    properties = decode_header(header)
    # What can be decoded passes the walk, and the walk saw the same.
    flags = message_flags(header)
    assert bool(flags & PERSISTENT) == (properties.delivery_mode == 2)
    assert bool(flags & EXPIRES) == (properties.expiration is not None)
    assert bool(flags & PRIORITY) == bool(properties.priority)
    headers = properties.headers or {}
    assert flags & SENDER_SELECTED or not ("CC" in headers or "BCC" in headers)
    again = encode_header(properties, 0)
    assert encode_header(decode_header(again), 0) == again


def fuzz_flags(data: bytes) -> None:
    message_flags(data)


def fuzz_method(data: bytes) -> None:
    decode_method(data)


def fuzz_known_method(data: bytes) -> None:
    number = NUMBERS[(data[0] if data else 0) % len(NUMBERS)]
    method, arguments = decode_method(number.to_bytes(4, "big") + data[1:])
    again = encode_method(method.id, **vars(arguments))
    assert encode_method(method.id, **vars(decode_method(again)[1])) == again


def fuzz_route(data: bytes) -> None:
    decode_route(data)


class Events:
    """A channel and a sink in one: notes what the frame reader finds."""

    def __init__(self) -> None:
        self.is_idle, self.streaming_body = True, False
        self.run_limit = MAX_RUN_PUBLISHES
        self.seen: list[tuple[object, ...]] = []
        self.reader = Amqp091FrameReader(self, 4096, {1: self})

    def publish(self, route: bytes, bits: int, header: bytes, body: bytes) -> None:
        self.seen.append((route, bits, header, body))

    def publish_run(
        self, route: bytes, bits: int, headers: list[bytes], bodies: list[bytes]
    ) -> None:
        for header, body in zip(headers, bodies, strict=True):
            self.publish(route, bits, header, body)

    def ack(self, tag: int, multiple: bool) -> None:
        self.seen.append((tag, multiple))

    def on_method(self, channel: int, payload: bytes) -> None:
        self.seen.append((channel, 1, payload))

    def on_header(self, channel: int, payload: bytes) -> None:
        self.seen.append((channel, 2, payload))

    def on_body(self, channel: int, payload: bytes | memoryview) -> None:
        self.seen.append((channel, 3, bytes(payload)))

    def on_error(self, channel: int, method: int, error: Exception) -> None:
        raise error

    def feed(self, *reads: bytes) -> str:
        try:
            for read in reads:
                self.reader.feed(read)
        except (FrameError, UnexpectedFrame) as error:
            return str(error)
        return ""


def fuzz_frames(data: bytes) -> None:
    """Cut in two anywhere between frames' content, a stream of frames means the same."""
    whole, halved = Events(), Events()
    whole.is_idle = halved.is_idle = False  # the short way needs all of a message in one read
    cut = data[0] if data else 0
    assert whole.feed(data[1:]) == halved.feed(data[1 : 1 + cut], data[1 + cut :])
    assert whole.seen == halved.seen
    short = Events()
    short.feed(data[1:])


TARGETS = (
    fuzz_frames,
    *(fuzz_table, fuzz_array, fuzz_honest_table, fuzz_header),
    *(fuzz_flags, fuzz_method, fuzz_known_method, fuzz_route),
)


def fuzz(data: bytes) -> None:
    if not data:
        return
    with suppress(WireSyntaxError, CommandInvalid, UnexpectedFrame):
        TARGETS[data[0] % len(TARGETS)](data[1:])


if __name__ == "__main__":
    run_fuzzer(fuzz)
