"""Frames and deliveries out of a stream of bytes, in whatever pieces it comes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import FrameError, UnexpectedFrame
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.frames import (
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_HEADER_STRUCT,
    AmqpFrame,
    FrameSplitter,
)
from penstock.wire.amqp091.methods import encode_method_frame
from penstock_spark.streams.deliveries import DeliveryBlock, DeliveryParser

CHANNEL = 1
CONSUMER = b"spark"
Delivery = tuple[str, str, bytes]


def new_deliveries() -> DeliveryParser:
    return DeliveryParser(CHANNEL, CONSUMER)


def read(found: DeliveryBlock) -> list[Delivery]:
    data = bytes(found.octets.data)
    places = zip(
        *(found.routes, found.headers, found.header_ends, found.bodies, found.body_ends),
        strict=True,
    )
    messages = []
    for route, start, stop, body, body_end in places:
        assert data[start:stop] == header(int(body_end - body))
        middle = route + 1 + data[route]
        end = middle + 1 + data[middle]
        exchange, key = data[route + 1 : middle], data[middle + 1 : end]
        messages.append((exchange.decode(), key.decode(), data[body:body_end]))
    return messages


def frame(kind: int, payload: bytes, channel: int = CHANNEL) -> bytes:
    return FRAME_HEADER_STRUCT.pack(kind, channel, len(payload)) + payload + b"\xce"


def header(size: int) -> bytes:
    return b"\x00\x3c\x00\x00" + size.to_bytes(8, "big") + b"\x00\x00"


def basic_deliver(number: int, exchange: str = "", key: str = "") -> bytes:
    return encode_method_frame(
        CHANNEL,
        methods.BASIC_DELIVER,
        consumer_tag="spark",
        delivery_tag=number,
        exchange=exchange,
        routing_key=key,
    )


def delivered(number: int, message: Delivery, frame_max: int) -> bytes:
    exchange, key, body = message
    pieces = [body[at : at + frame_max] for at in range(0, len(body), frame_max)]
    frames = [basic_deliver(number, exchange, key), frame(FRAME_HEADER, header(len(body)))]
    return b"".join(frames + [frame(FRAME_BODY, piece) for piece in pieces])


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:stop] for start, stop in pairwise(edges)]


messages = st.lists(
    st.tuples(st.text("ab.", max_size=5), st.text("xy.", max_size=9), st.binary(max_size=40))
)
places = st.lists(st.integers(0, 10_000), max_size=12)


@given(messages, places, st.integers(1, 50))
def test_deliveries_do_not_depend_on_how_the_bytes_are_cut(
    sent: list[Delivery], where: list[int], frame_max: int
) -> None:
    data = b"".join(delivered(number, message, frame_max) for number, message in enumerate(sent, 1))
    deliveries = new_deliveries()
    found: list[Delivery] = []
    for piece in cut(data, where):
        runs, others = deliveries.feed(piece)
        assert others == []
        found += [message for run in runs for message in read(run)]
        assert deliveries.tag == len(found)

    assert found == sent


def test_deliveries_that_follow_one_another_are_taken_together() -> None:
    sent = [("", "key" * size, b"x" * size) for size in range(50)]
    data = b"".join(delivered(number, message, 100) for number, message in enumerate(sent, 1))

    (run,), _ = new_deliveries().feed(data)

    assert read(run) == sent


def test_a_body_that_looks_like_deliveries_is_a_body() -> None:
    inner = delivered(7, ("a", "b", b"inner"), 100)
    sent = [("", "k", inner[place:]) for place in range(len(inner))] + [("", "k", b"last")]
    data = b"".join(delivered(number, message, 100) for number, message in enumerate(sent, 1))
    deliveries = new_deliveries()

    runs, others = deliveries.feed(data)

    assert [message for run in runs for message in read(run)] == sent
    assert (deliveries.tag, others) == (len(sent), [])


def test_what_comes_between_deliveries_is_handed_over_in_its_order() -> None:
    first, second = (delivered(number, ("", "k", b"x"), 9) for number in (1, 2))
    notice = encode_method_frame(0, methods.CONNECTION_BLOCKED, reason="memory")
    deliveries = new_deliveries()

    runs, others = deliveries.feed(first + notice + second)

    assert [len(run) for run in runs] == [1, 1]
    assert [each.channel for each in others] == [0]


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 9), st.binary(max_size=20))), places)
def test_frames_do_not_depend_on_how_the_bytes_are_cut(
    sent: list[tuple[int, int, bytes]], where: list[int]
) -> None:
    data = b"".join(frame(kind, payload, channel) for kind, channel, payload in sent)
    frames = FrameSplitter()

    found = [each for piece in cut(data, where) for each in frames.feed(piece)]

    assert found == [AmqpFrame(*each) for each in sent]


def test_what_is_no_delivery_is_handed_over() -> None:
    cancel = encode_method_frame(CHANNEL, methods.BASIC_CANCEL, consumer_tag="spark")
    elsewhere = frame(FRAME_BODY, b"x", channel=2)

    found, others = new_deliveries().feed(cancel + elsewhere)

    assert found == []
    assert [(each.kind, each.channel) for each in others] == [(1, 1), (3, 2)]


@pytest.mark.parametrize(
    "data",
    [
        frame(FRAME_HEADER, header(0)),
        basic_deliver(1) + frame(FRAME_BODY, b"early"),
        basic_deliver(1) + frame(FRAME_HEADER, header(1)) + frame(FRAME_BODY, b"xx"),
    ],
    ids=["no delivery", "no header", "too long"],
)
def test_content_out_of_order_is_refused(data: bytes) -> None:
    with pytest.raises(UnexpectedFrame):
        new_deliveries().feed(data)


@pytest.mark.parametrize("reader", [FrameSplitter(), new_deliveries()])
def test_what_is_not_framed_is_refused(reader: FrameSplitter | DeliveryParser) -> None:
    with pytest.raises(FrameError):
        reader.feed(frame(1, b"")[:-1] + b"x")
