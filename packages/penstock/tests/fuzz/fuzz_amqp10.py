"""Fuzzes AMQP 1.0: values, messages, their conversion, and a connection as a peer meets it.

    python packages/penstock/tests/fuzz/fuzz_amqp10.py -runs=1000000

Coverage-guided, by atheris. An input is one choice of what to feed and the bytes to feed it. A
decoder may refuse them by the errors it promises; anything else is a finding. What is accepted
must survive being written and read again; and a connection must say the same however its bytes
are cut.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import atheris

with atheris.instrument_imports(
    include=[
        "penstock.wire.amqp10",
        "penstock.protocols.amqp10.conversion",
        "penstock.core",
        "penstock.broker.content_header",
    ]
):
    from penstock.broker.content_header import message_flags
    from penstock.broker.contract import Message
    from penstock.core.basic_properties import decode_header, encode_route
    from penstock.core.errors import PenstockError
    from penstock.protocols.amqp10.conversion.decoder import convert_incoming
    from penstock.protocols.amqp10.conversion.encoder import convert_outgoing
    from penstock.wire.amqp10.codec import decode, decode_whole, encode
    from penstock.wire.amqp10.connection import Amqp10Connection
    from penstock.wire.amqp10.errors import DecodeError
    from penstock.wire.amqp10.links import LinkEndpoint, OutgoingDelivery, ReceiverLink, SenderLink
    from penstock.wire.amqp10.message import decode_message, encode_message
    from penstock.wire.amqp10.performatives import (
        ACCEPTED,
        PERFORMATIVES,
        Amqp10Error,
        Begin,
        LinkSource,
        LinkTarget,
        Open,
        decode_performative,
        encode_performative_frame,
    )
    from penstock.wire.amqp10.session import Amqp10Session
    from tests.fuzz_input import pieces, run_fuzzer

ROUTE = encode_route("", "q")
OPENED = encode_performative_frame(0, Open("peer")) + encode_performative_frame(
    0, Begin(next_outgoing_id=0, incoming_window=5, outgoing_window=5)
)


def fuzz_value(data: bytes) -> None:
    value, end = decode(data)
    assert end <= len(data)
    again = encode(value)
    assert encode(decode_whole(again)) == again


def fuzz_message(data: bytes) -> None:
    again = encode_message(decode_message(data))
    assert encode_message(decode_message(again)) == again


def fuzz_conversion(data: bytes) -> None:
    """What comes from a client of 1.0 is a message of 0-9-1, and goes out to one again."""
    found = convert_incoming(data, 0.0)
    decode_header(found.header)
    assert message_flags(found.header) & ~found.flags == 0
    before, after = convert_outgoing(Message(ROUTE, found.header, found.body, found.flags), count=1)
    decode_message(before + found.body + after)


def fuzz_header(data: bytes) -> None:
    """Whatever a client of 0-9-1 says, one of 1.0 can read."""
    header = b"\x00\x3c\x00\x00" + bytes(8) + data
    flags = message_flags(header)
    before, after = convert_outgoing(Message(ROUTE, header, b"", flags))
    decode_message(before + after)


def fuzz_performative(data: bytes) -> None:
    read = decode_performative(PERFORMATIVES, data, 0, len(data))
    again = PERFORMATIVES.encode(read)
    assert decode_performative(PERFORMATIVES, again, 0, len(again)) == read


class Owner:
    """Accepts every link, sends where it may, settles what comes, and notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.connection = Amqp10Connection(self, "fuzzed", frame_max=512, channel_max=3)
        self.connection.reader.awaits_header = False

    def on_open(self, opened: Open) -> None:
        self.connection.open()

    def on_attach(self, link: Any) -> None:
        self.told.append(("attach", link.name, link.role))
        link.accept(LinkSource(), LinkTarget())
        if isinstance(link, ReceiverLink):
            link.grant(2)

    def on_flow(self, link: SenderLink) -> None:
        # Both may be billions. A broker stops when the client does not read.
        while link.credit > 0 and not link.session.waits and self.connection.out_bytes < 60_000:
            link.send(link.new(False), b"x" * 600)
        if link.draining:
            link.drained()

    def on_transfer(self, delivery: Any, payload: bytes, more: bool) -> None:
        self.told.append(("transfer", delivery.id, payload, more))
        if not more:
            delivery.settle(ACCEPTED)

    def on_close(self, error: Amqp10Error | None) -> None:
        self.told.append(("close", error and error.condition))

    def on_end(self, session: Amqp10Session, error: Amqp10Error | None) -> None:
        self.told.append(("end", session.channel, error and error.condition))

    def on_detach(self, link: LinkEndpoint, closed: bool, error: Amqp10Error | None) -> None:
        self.told.append(("detach", link.name, closed, error and error.condition))

    def on_outcomes(self, deliveries: list[OutgoingDelivery]) -> None:
        self.told += [("outcome", delivery.id, delivery.state) for delivery in deliveries]

    def _nothing(self, *_: Any) -> None:
        """It is the engine's."""

    on_output = on_begin = on_window_open = on_abort = on_settled = on_drained = _nothing

    def feed(self, *reads: bytes) -> list[tuple[object, ...]]:
        """What was told; descriptions are left out, which may say where in a read a fault is."""
        for read in reads:
            self.connection.receive(read)
        assert self.connection.reader.waiting <= 512 + max(map(len, reads), default=0)
        return [*self.told, (self.connection.finished, len(self.connection.sessions))]


def fuzz_stream(data: bytes) -> None:
    """Cut in two anywhere, or into many pieces, a stream of frames means the same."""
    cut = data[0] if data else 0
    data = OPENED + data[1:]
    said = Owner().feed(data)
    assert Owner().feed(data[:cut], data[cut:]) == said
    assert Owner().feed(*pieces(data)) == said


def fuzz_frames(data: bytes) -> None:
    """As `fuzz_stream`, with frames whose sizes are right: each is a length and a body."""
    frames = b""
    at = 1
    while at < len(data):
        body = b"\x00\x53" + data[at + 1 : at + 1 + data[at] % 64]
        frames += (len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body
        at += 1 + data[at] % 64
    fuzz_stream(data[:1] + frames)


TARGETS = (
    fuzz_value,
    fuzz_message,
    fuzz_conversion,
    fuzz_header,
    fuzz_performative,
    fuzz_stream,
    fuzz_frames,
)


def fuzz_one(data: bytes) -> None:
    if data:
        target = TARGETS[data[0] % len(TARGETS)]
        promised = PenstockError if target is fuzz_header else DecodeError
        with suppress(promised):
            target(data[1:])


if __name__ == "__main__":
    run_fuzzer(fuzz_one)
