"""What leaves on one channel leaves in order, and nothing comes between a method and its content.

A large message takes a while to leave. Whatever else the channel has to say meanwhile, answers,
returns, deliveries, waits behind it. Read frame by frame: a client library would forgive too much.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pika import frame, spec

from tests.integration.amqp091.wire import (
    BODY,
    Wire,
    frame_bytes,
    header_bytes,
    message_bytes,
    method_bytes,
)
from tests.peers import Broker

MIB = 1 << 20
LARGE = random.Random(11).randbytes(2 * MIB + 1)
#: More than sockets hold between them.
HUGE = LARGE * 16

CARRY_CONTENT = ("Basic.Deliver", "Basic.GetOk", "Basic.Return")


def publish_large(
    wire: Wire, key: str, body: bytes = LARGE, mandatory: bool = False, channel: int = 1
) -> None:
    publish = spec.Basic.Publish(routing_key=key, mandatory=mandatory)
    frames = [method_bytes(channel, publish), header_bytes(channel, len(body))]
    for at in range(0, len(body), 131064):
        frames.append(frame_bytes(BODY, channel, body[at : at + 131064]))
    wire.send(b"".join(frames))


def content(wire: Wire) -> bytes:
    header = wire.receive()
    assert isinstance(header, frame.Header), f"{header} came instead of a header"
    body = bytearray()
    while len(body) < header.body_size:
        piece = wire.receive()
        assert isinstance(piece, frame.Body), f"{piece} came in the middle of a body"
        body += piece.fragment
    return bytes(body)


def replies(wire: Wire) -> Iterator[tuple[Any, bytes | None]]:
    """Methods as they come, each with its content if it carries any."""
    while True:
        arrived = wire.receive()
        assert isinstance(arrived, frame.Method), f"{arrived} is the content of nothing"
        carries = arrived.method.NAME in CARRY_CONTENT
        yield arrived.method, content(wire) if carries else None


def take(wire: Wire, count: int) -> list[tuple[Any, bytes | None]]:
    arrived = replies(wire)
    return [next(arrived) for _ in range(count)]


def names(taken: list[tuple[Any, bytes | None]]) -> list[str]:
    return [method.NAME for method, _ in taken]


@pytest.fixture
def filled(broker: Broker, name: str) -> Iterator[str]:
    """A queue with a huge message, then a large one, then a small one in it."""
    with Wire(broker.port) as wire:
        wire.negotiate()
        wire.open_channel()
        wire.call(1, spec.Queue.Declare(queue=name))
        wire.call(1, spec.Confirm.Select())
        publish_large(wire, name, HUGE)
        publish_large(wire, name)
        wire.send(message_bytes(1, b"small", routing_key=name))
        while True:
            ack = wire.receive_method()
            if ack.delivery_tag == 3:
                break
        yield name
        wire.call(1, spec.Queue.Delete(queue=name))


def test_a_large_message_comes_back_whole_and_is_confirmed_behind(
    open_wire: Wire, name: str
) -> None:
    open_wire.call(1, spec.Confirm.Select())

    publish_large(open_wire, name, mandatory=True)

    (returned, body), (ack, _) = take(open_wire, 2)
    assert (returned.NAME, returned.reply_code, returned.routing_key) == ("Basic.Return", 312, name)
    assert body == LARGE
    assert (ack.NAME, ack.delivery_tag) == ("Basic.Ack", 1)


def test_many_come_back_in_order(open_wire: Wire, name: str) -> None:
    open_wire.call(1, spec.Confirm.Select())
    bodies = [LARGE, b"small", LARGE[1:], LARGE[2:], b"smaller", LARGE[3:]]

    def publish() -> None:
        for number, body in enumerate(bodies):
            if len(body) > 100:
                publish_large(open_wire, f"{name}.{number}", body, mandatory=True)
            else:
                key = f"{name}.{number}"
                open_wire.send(message_bytes(1, body, routing_key=key, mandatory=True))

    publishing = threading.Thread(target=publish)
    publishing.start()
    returned: list[tuple[str, bytes | None]] = []
    confirmed = 0
    arrived = replies(open_wire)
    while confirmed < len(bodies):
        method, body = next(arrived)
        if method.NAME == "Basic.Return":
            returned.append((method.routing_key, body))
        else:
            confirmed = method.delivery_tag
            assert confirmed <= len(returned), "confirmed before it was returned"
    publishing.join()

    assert returned == [(f"{name}.{number}", body) for number, body in enumerate(bodies)]


def consume(wire: Wire, queue: str) -> None:
    """Begin to consume; returns when the first delivery, and only that, has begun to arrive."""
    wire.call(1, spec.Basic.Qos(prefetch_count=1))
    wire.call(1, spec.Basic.Consume(queue=queue, consumer_tag="c"))
    assert wire.receive().method.NAME == "Basic.Deliver"


def test_a_return_waits_behind_a_large_delivery(open_wire: Wire, filled: str, name: str) -> None:
    consume(open_wire, filled)
    publish_large(open_wire, f"{name}.nowhere", mandatory=True)
    open_wire.send(message_bytes(1, b"tiny", routing_key=f"{name}.nowhere", mandatory=True))

    assert content(open_wire) == HUGE
    taken = take(open_wire, 2)
    assert names(taken) == ["Basic.Return", "Basic.Return"]
    assert [body for _, body in taken] == [LARGE, b"tiny"]


def test_answers_keep_their_order_around_large_messages(open_wire: Wire, filled: str) -> None:
    asked: list[Any] = [
        spec.Basic.Get(queue=filled),
        spec.Queue.Declare(queue=filled, passive=True),
        spec.Basic.Get(queue=filled),
        spec.Basic.Get(queue=filled),
        spec.Basic.Get(queue=filled),
        spec.Basic.Qos(prefetch_count=1),
    ]
    open_wire.send(b"".join(method_bytes(1, method) for method in asked))

    taken = take(open_wire, len(asked))

    get, end = ["Basic.GetOk"], ["Basic.GetEmpty", "Basic.QosOk"]
    assert names(taken) == [*get, "Queue.DeclareOk", *get, *get, *end]
    assert [body for _, body in taken if body is not None] == [HUGE, LARGE, b"small"]
    assert [method.delivery_tag for method, body in taken if body is not None] == [1, 2, 3]


def test_what_is_got_waits_behind_what_is_delivered(open_wire: Wire, filled: str) -> None:
    consume(open_wire, filled)
    open_wire.send(method_bytes(1, spec.Basic.Get(queue=filled)))

    assert content(open_wire) == HUGE
    ((method, body),) = take(open_wire, 1)
    assert (method.NAME, method.delivery_tag, body == LARGE) == ("Basic.GetOk", 2, True)


def test_a_consumer_cancelled_in_the_middle_gets_the_rest(open_wire: Wire, filled: str) -> None:
    consume(open_wire, filled)
    open_wire.send(method_bytes(1, spec.Basic.Cancel(consumer_tag="c")))

    assert content(open_wire) == HUGE
    assert names(take(open_wire, 1)) == ["Basic.CancelOk"]
    open_wire.send(method_bytes(1, spec.Basic.Ack(delivery_tag=1)))
    open_wire.send(method_bytes(1, spec.Basic.Get(queue=filled)))
    assert take(open_wire, 1)[0][1] == LARGE


def test_a_tag_may_be_used_again_at_once(open_wire: Wire, name: str) -> None:
    """Answers to what the first had, its end, and the second of that name, all in one write."""
    consume_again = method_bytes(1, spec.Basic.Consume(queue=name, consumer_tag="again"))
    open_wire.call(1, spec.Queue.Declare(queue=name, exclusive=True))
    open_wire.call(1, spec.Basic.Qos(prefetch_count=1))
    open_wire.send(
        message_bytes(1, b"one", routing_key=name) + message_bytes(1, b"two", routing_key=name)
    )
    open_wire.send(consume_again)

    def delivered() -> tuple[int, bytes]:
        for method, body in replies(open_wire):
            if body is not None:
                return method.delivery_tag, body
        raise AssertionError("nothing was delivered")

    assert delivered() == (1, b"one")
    ack, cancel = spec.Basic.Ack(1), spec.Basic.Cancel(consumer_tag="again")
    open_wire.send(method_bytes(1, ack) + method_bytes(1, cancel) + consume_again)
    assert delivered()[1] == b"two"
