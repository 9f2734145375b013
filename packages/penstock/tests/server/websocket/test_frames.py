"""Frames: the `websockets` library is what the reader is held against."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
import websockets.speedups
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from penstock.server import websocket_protocol
from penstock.server.websocket_protocol import (
    WebSocketClose,
    WebSocketFrameReader,
    binary_frame,
    close_frame,
    pong_frame,
)

MAX_BYTES = 1 << 20
OCTETS = bytes(range(251))


def frame(opcode: Opcode, data: bytes, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


def binary(data: bytes) -> bytes:
    return frame(Opcode.BINARY, data)


def after(*received: bytes) -> WebSocketFrameReader:
    reader = WebSocketFrameReader(MAX_BYTES)
    for data in received:
        reader.feed(data)
    return reader


def cut(data: bytes, places: list[int]) -> Iterator[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    for start, stop in pairwise(edges):
        yield data[start:stop]


def by_the_library(data: bytes) -> tuple[bytes, ServerProtocol]:
    """The payload of the frames in it, and the library's parser afterwards."""
    library = ServerProtocol(state=OPEN, max_size=MAX_BYTES)
    library.receive_data(data)
    frames = [event for event in library.events_received() if isinstance(event, Frame)]
    carrying = (Opcode.BINARY, Opcode.CONT)
    return b"".join(bytes(each.data) for each in frames if each.opcode in carrying), library


payloads = st.binary(max_size=300) | st.integers(0, 70_000).map(lambda size: (OCTETS * 300)[:size])
controls = st.builds(frame, st.sampled_from([Opcode.PING, Opcode.PONG]), st.binary(max_size=125))


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A binary message in one frame or several, with control frames between."""
    parts = draw(st.lists(payloads, min_size=1, max_size=4))
    sent = b""
    for number, part in enumerate(parts):
        opcode = Opcode.CONT if number else Opcode.BINARY
        sent += b"".join(draw(st.lists(controls, max_size=2)))
        sent += frame(opcode, part, fin=number == len(parts) - 1)
    return sent


@given(st.lists(messages(), max_size=5).map(b"".join), st.lists(st.integers(0), max_size=8))
def test_the_payload_is_the_librarys_wherever_reads_end(sent: bytes, places: list[int]) -> None:
    reader = WebSocketFrameReader(MAX_BYTES)

    payload = b"".join(reader.feed(piece) for piece in cut(sent, places))

    assert payload == by_the_library(sent)[0]
    assert reader.end is None


@given(st.lists(messages() | st.binary(max_size=20), max_size=5).map(b"".join), st.integers(0))
def test_whatever_comes_is_read_or_refused(sent: bytes, place: int) -> None:
    reader = WebSocketFrameReader(MAX_BYTES)

    payload = b"".join(reader.feed(piece) for piece in cut(sent, [place]))

    expected, library = by_the_library(sent)
    if reader.end is None:  # a payload is handed on before its frame is whole
        assert payload.startswith(expected)
        assert library.close_sent is None
    else:
        assert expected.startswith(payload) or payload.startswith(expected)


@given(st.binary(max_size=70_000), st.sampled_from([bytes, bytearray, memoryview]))
def test_what_is_written_is_one_frame(payload: bytes, kind: type[bytes]) -> None:
    client = ClientProtocol(parse_uri("ws://localhost/"), state=OPEN)

    client.receive_data(binary_frame(kind(payload)))

    assert client.events_received() == [Frame(Opcode.BINARY, payload)]


def test_unmasking_is_done_in_c() -> None:
    assert vars(websocket_protocol)["apply_mask"] is websockets.speedups.apply_mask


def test_a_payload_is_handed_on_as_it_comes() -> None:
    reader = WebSocketFrameReader(MAX_BYTES)
    sent = binary(b"a long one" * 1000)

    assert reader.feed(sent[:100]) == (b"a long one" * 1000)[: 100 - 8]
    assert reader.feed(sent[100:101]) == b"l"


def test_the_frames_of_one_read_are_one_piece() -> None:
    sent = binary(b"one ") + frame(Opcode.PONG, b"") + binary(b"two ") + binary(b"three")

    assert WebSocketFrameReader(MAX_BYTES).feed(sent) == b"one two three"


def test_the_last_ping_counts() -> None:
    assert after(frame(Opcode.PING, b"one") + frame(Opcode.PING, b"two")).ping == b"two"


def test_a_control_frame_may_come_in_the_middle_of_a_message() -> None:
    reader = WebSocketFrameReader(MAX_BYTES)
    sent = (
        frame(Opcode.BINARY, b"a", fin=False) + frame(Opcode.PING, b"") + frame(Opcode.CONT, b"b")
    )

    assert reader.feed(sent) == b"ab"
    assert reader.ping == b""


def test_what_came_before_a_mistake_counts() -> None:
    reader = WebSocketFrameReader(MAX_BYTES)

    assert reader.feed(binary(b"right") + frame(Opcode.TEXT, b"wrong")) == b"right"
    assert reader.end is not None
    assert reader.feed(binary(b"later")) == b""


def unmasked(*octets: int) -> bytes:
    return bytes(octets)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        pytest.param(frame(Opcode.TEXT, b"words"), 1003, id="text"),
        pytest.param(frame(Opcode.TEXT, b"wo", fin=False), 1003, id="text in fragments"),
        pytest.param(unmasked(0x82, 0x00), 1002, id="no mask"),
        pytest.param(unmasked(0x89, 0x00), 1002, id="a ping without a mask"),
        pytest.param(unmasked(0xC2, 0x80), 1002, id="a reserved bit: compressed"),
        pytest.param(unmasked(0x83, 0x80), 1002, id="an opcode nobody knows"),
        pytest.param(unmasked(0x8B, 0x80), 1002, id="a control opcode nobody knows"),
        pytest.param(unmasked(0x09, 0x80), 1002, id="a fragment of a ping"),
        pytest.param(unmasked(0x89, 0xFE), 1002, id="a long ping"),
        pytest.param(frame(Opcode.CONT, b"x"), 1002, id="a continuation of nothing"),
        pytest.param(
            frame(Opcode.BINARY, b"x", fin=False) + binary(b"y"), 1002, id="no continuation"
        ),
        pytest.param(frame(Opcode.CLOSE, b"\x03"), 1002, id="half a close code"),
        pytest.param(frame(Opcode.CLOSE, b"\x03\xed"), 1002, id="a close code nobody may send"),
        pytest.param(frame(Opcode.CLOSE, b"\x03\xe8\xff"), 1007, id="a reason that is no UTF-8"),
        pytest.param(
            unmasked(0x82, 0xFF, *(MAX_BYTES + 1).to_bytes(8, "big"), 0, 0, 0, 0), 1009, id="long"
        ),
        pytest.param(unmasked(0x82, 0xFF, *[0xFF] * 12), 1009, id="longer than can be"),
    ],
)
def test_a_mistake_has_its_code(sent: bytes, code: int) -> None:
    end = after(sent).end

    assert end is not None
    assert (end.code, end.by_client) == (code, False)


def test_a_limit_is_not_passed_by_reaching_it() -> None:
    reader = WebSocketFrameReader(1000)

    assert reader.feed(binary(bytes(1000))) == bytes(1000)
    assert reader.end is None


def test_a_close_says_why() -> None:
    sent = frame(Opcode.CLOSE, Close(1001, "off home").serialize())

    assert after(sent[:-1]).end is None
    assert after(sent[:-1], sent[-1:]).end == WebSocketClose(1001, "off home", by_client=True)


def test_a_close_need_not_say_why() -> None:
    assert after(frame(Opcode.CLOSE, b"")).end == WebSocketClose(1005, "", by_client=True)


def test_golden_bytes() -> None:
    assert binary_frame(b"Hi") == b"\x82\x02Hi"
    assert binary_frame(bytes(126))[:4] == b"\x82\x7e\x00\x7e"
    assert binary_frame(bytes(65536))[:10] == b"\x82\x7f" + (65536).to_bytes(8, "big")
    assert pong_frame(b"Hi") == b"\x8a\x02Hi"
    assert close_frame(1003, "no") == b"\x88\x04\x03\xebno"
    assert close_frame(1005) == b"\x88\x00"
