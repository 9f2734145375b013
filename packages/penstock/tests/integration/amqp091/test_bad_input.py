"""What a broken or hostile client gets on an open connection, and that nobody else notices.

Where RabbitMQ answers, Penstock gives the same answer. Where RabbitMQ's connection just crashes,
either an error of the protocol or a closed socket will do.
"""

from __future__ import annotations

import struct

import pytest
from pika import spec
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.dialogue import get_body
from tests.integration.amqp091.wire import (
    BODY,
    HEARTBEAT,
    METHOD,
    Wire,
    frame_bytes,
    header_bytes,
    message_bytes,
    method_bytes,
)

pytestmark = pytest.mark.usefixtures("bystander")

PUBLISH = method_bytes(1, spec.Basic.Publish(routing_key="nowhere"))
QOS = struct.pack(">HHIHB", 60, 10, 0, 0, 0)


def class_bytes(class_: int, method: int, arguments: bytes = b"") -> bytes:
    return frame_bytes(METHOD, 1, struct.pack(">HH", class_, method) + arguments)


def declare_bytes(arguments: bytes) -> bytes:
    return class_bytes(50, 10, b"\0\0" + b"\0" + b"\x08" + arguments)


@pytest.mark.parametrize(
    ("data", "code", "text", "culprit"),
    [
        pytest.param(
            struct.pack(">BHI", BODY, 1, 200_000),
            *(501, "FRAME_ERROR - ", (0, 0)),
            id="a frame that announces too much",
        ),
        pytest.param(
            struct.pack(">BHI", METHOD, 1, 0xFFFF_FFFF),
            *(501, "FRAME_ERROR - ", (0, 0)),
            id="a frame that announces all it can",
        ),
        pytest.param(
            frame_bytes(METHOD, 1, QOS, end=b"\x00"),
            *(501, "FRAME_ERROR - ", (0, 0)),
            id="a wrong frame end",
        ),
        pytest.param(
            frame_bytes(7, 1, b"abc"), 501, "FRAME_ERROR - ", (0, 0), id="an unknown frame type"
        ),
        pytest.param(
            frame_bytes(METHOD, 1, b"\0\x3c"),
            *(501, "FRAME_ERROR - ", (0, 0)),
            id="a method frame without a method",
        ),
        pytest.param(
            class_bytes(60, 10, b"\0"),
            *(501, "FRAME_ERROR - ", (60, 10)),
            id="a method with too few arguments",
        ),
        pytest.param(
            frame_bytes(METHOD, 1, QOS + b"zz"),
            *(501, "FRAME_ERROR - ", (60, 10)),
            id="a method with too many arguments",
        ),
        pytest.param(
            class_bytes(50, 10, b"\0\0" + b"\xffabc"),
            *(501, "FRAME_ERROR - ", (50, 10)),
            id="a short string longer than its frame",
        ),
        pytest.param(
            declare_bytes(struct.pack(">I", 500) + b"\x01aF"),
            *(501, "FRAME_ERROR - ", (50, 10)),
            id="a table longer than its frame",
        ),
        pytest.param(
            header_bytes(1, 5),
            *(505, "UNEXPECTED_FRAME - expected method frame, got", (0, 0)),
            id="a content header without a method",
        ),
        pytest.param(
            frame_bytes(BODY, 1, b"abc"),
            *(505, "UNEXPECTED_FRAME - expected method frame, got", (0, 0)),
            id="a content body without a method",
        ),
        pytest.param(
            PUBLISH + frame_bytes(METHOD, 1, QOS),
            *(505, "UNEXPECTED_FRAME - expected content header for class 60, got", (60, 40)),
            id="a method instead of a content header",
        ),
        pytest.param(
            PUBLISH + frame_bytes(BODY, 1, b"abc"),
            *(505, "UNEXPECTED_FRAME - expected content header for class 60, got", (60, 40)),
            id="a content body instead of a content header",
        ),
        pytest.param(
            PUBLISH + header_bytes(1, 5) + header_bytes(1, 5),
            *(505, "UNEXPECTED_FRAME - expected content body, got", (60, 40)),
            id="a second content header",
        ),
        pytest.param(
            PUBLISH + header_bytes(1, 5) + frame_bytes(METHOD, 1, QOS),
            *(505, "UNEXPECTED_FRAME - expected content body, got", (60, 40)),
            id="a method instead of a content body",
        ),
        pytest.param(
            PUBLISH + header_bytes(1, 5) + frame_bytes(BODY, 1, b"too long") + PUBLISH,
            *(505, "UNEXPECTED_FRAME - ", (60, 40)),
            id="more content than announced",
        ),
        pytest.param(
            PUBLISH + header_bytes(1, 5)[:7] + b"\0\x32" + header_bytes(1, 5)[9:],
            *(
                505,
                "UNEXPECTED_FRAME - expected content header for class 60",
                (60, 40),
            ),
            id="a content header of another class",
        ),
        pytest.param(
            method_bytes(2, spec.Basic.Qos()),
            *(504, "CHANNEL_ERROR - expected 'channel.open'", (60, 10)),
            id="a method on a channel that is not open",
        ),
        pytest.param(
            method_bytes(1, spec.Channel.Open()),
            *(504, "CHANNEL_ERROR - second 'channel.open' seen", (20, 10)),
            id="a channel opened twice",
        ),
        pytest.param(
            method_bytes(0, spec.Basic.Qos()),
            *(504, "CHANNEL_ERROR - ", (60, 10)),
            id="a channel's method on channel zero",
        ),
        pytest.param(
            method_bytes(0, spec.Channel.Open()),
            *(504, "CHANNEL_ERROR - ", (20, 10)),
            id="opening channel zero",
        ),
        pytest.param(
            method_bytes(0, spec.Connection.Open("/")),
            *(504, "CHANNEL_ERROR - ", (10, 40)),
            id="a connection opened twice",
        ),
        pytest.param(
            method_bytes(1, spec.Connection.Open("/")),
            *(503, "COMMAND_INVALID - unimplemented method", (10, 40)),
            id="a connection's method on a channel",
        ),
        pytest.param(
            method_bytes(1, spec.Basic.QosOk()),
            *(503, "COMMAND_INVALID - unimplemented method", (60, 11)),
            id="an answer nobody asked for",
        ),
        pytest.param(
            method_bytes(1, spec.Basic.Deliver("a", 1, False, "", "")) + header_bytes(1, 0),
            *(503, "COMMAND_INVALID - unimplemented method", (60, 60)),
            id="a method only brokers send",
        ),
        pytest.param(
            frame_bytes(HEARTBEAT, 1, b""),
            *(505, "UNEXPECTED_FRAME - ", (0, 0)),
            id="a heartbeat on a channel",
        ),
        pytest.param(
            frame_bytes(HEARTBEAT, 0, b"x"),
            *(501, "FRAME_ERROR - ", (0, 0)),
            id="a heartbeat with content",
        ),
    ],
)
def test_a_broken_conversation_is_closed_with_the_protocols_own_error(
    open_wire: Wire, data: bytes, code: int, text: str, culprit: tuple[int, int]
) -> None:
    open_wire.send(data)

    close = open_wire.receive_close()
    assert close is not None
    assert (close.reply_code, close.class_id, close.method_id) == (code, *culprit)
    assert close.reply_text.startswith(text)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(class_bytes(99, 10), id="an unknown class"),
        pytest.param(class_bytes(60, 999), id="an unknown method"),
        pytest.param(
            declare_bytes(struct.pack(">I", 3) + b"\x01a?"), id="a field of an unknown type"
        ),
        pytest.param(
            declare_bytes(struct.pack(">I", 5) + b"\x01aI\0\0"), id="a field that is cut short"
        ),
        pytest.param(
            class_bytes(50, 10, b"\0\0" + b"\x02\xff\xfe" + b"\x08\0\0\0\0"), id="bad text"
        ),
    ],
)
def test_what_cannot_be_read_ends_the_connection(open_wire: Wire, data: bytes) -> None:
    open_wire.send(data)

    close = open_wire.receive_close()
    assert close is None or close.reply_code in (501, 502, 503, 540)


def test_the_limit_is_the_negotiated_one(wire: Wire) -> None:
    wire.negotiate(frame_max=4096)
    wire.open_channel()

    wire.send(struct.pack(">BHI", BODY, 1, 5000))

    close = wire.receive_close()
    assert close is not None
    assert close.reply_code == 501


def test_after_the_close_the_broker_waits_for_the_answer_and_closes(open_wire: Wire) -> None:
    open_wire.send(frame_bytes(7, 1, b""))
    open_wire.receive_close()

    open_wire.send(method_bytes(0, spec.Connection.CloseOk()))

    assert open_wire.receive_rest() == b""


@pytest.mark.parametrize("depth", [1_000, 15_000])
def test_a_deeply_nested_table_is_no_trouble(open_wire: Wire, depth: int) -> None:
    table = struct.pack(">I", 0)
    for _ in range(depth):
        field = b"\x01aF" + table
        table = struct.pack(">I", len(field)) + field

    open_wire.send(declare_bytes(table))

    answer = open_wire.receive_method()
    assert answer is None or answer.NAME in ("Queue.DeclareOk", "Connection.Close")


def test_the_limit_of_channels_is_how_many_and_not_which(wire: Wire) -> None:
    wire.negotiate(channel_max=2)
    wire.open_channel(65535)
    wire.open_channel(11)

    assert wire.call(1, spec.Channel.Open()).reply_code == 530


@pytest.mark.parametrize("size", [131065, 131072])
def test_a_payload_may_be_as_large_as_frames_may_be(wire: Wire, name: str, size: int) -> None:
    """Some clients count a frame's head and its end among those bytes, and some do not."""
    wire.negotiate(frame_max=131072)
    wire.open_channel()
    wire.call(1, spec.Confirm.Select())

    wire.send(message_bytes(1, bytes(size), routing_key=f"{name}.nowhere"))

    assert wire.receive_method().NAME == "Basic.Ack"


def test_a_payload_over_the_limit_closes_the_connection(wire: Wire, name: str) -> None:
    wire.negotiate(frame_max=131072)
    wire.open_channel()

    wire.send(message_bytes(1, bytes(131073), routing_key=name))

    assert wire.receive_close().reply_code == 501


def test_a_message_cut_off_in_the_middle_is_not_delivered(
    open_wire: Wire, channel: BlockingChannel, queue: str
) -> None:
    publish = method_bytes(1, spec.Basic.Publish(routing_key=queue))
    open_wire.send(publish + header_bytes(1, 1000) + frame_bytes(BODY, 1, b"x" * 500))

    open_wire.socket.close()

    assert get_body(channel, queue) is None
