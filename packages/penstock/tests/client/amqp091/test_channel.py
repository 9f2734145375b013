"""A channel alone: who is told what, when the broker confirms, refuses, returns and closes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.core.basic_properties import BasicProperties, encode_header, encode_route
from penstock.core.errors import ChannelError, NoRoute, NotFound, PreconditionFailed, QueueFull
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.address import parse_amqp_url
from penstock.wire.amqp091.content import AmqpContent
from penstock.wire.amqp091.frames import FRAME_MAX, FRAME_METHOD, FrameSplitter
from penstock.wire.amqp091.methods import ReceivedMethod, decode_method, encode_method

SAID = BasicProperties("text/plain")


class Connection:
    """Keeps what is sent. Is `Sender`."""

    def __init__(self) -> None:
        self.address = parse_amqp_url("amqp://broker")
        self.flowing = True
        self.frame_max = FRAME_MAX
        self.out = b""
        self.left: list[int] = []

    def send(self, data: bytes) -> None:
        self.out += data

    def closed(self, channel: int) -> None:
        self.left.append(channel)

    async def flow(self) -> None:
        raise AssertionError("it flows")

    def said(self) -> list[ReceivedMethod]:
        """The methods that were sent since the last time."""
        out, self.out = self.out, b""
        return [
            decode_method(each.payload)
            for each in FrameSplitter().feed(out)
            if each.kind == FRAME_METHOD
        ]


def received(method: int, /, **arguments: Any) -> ReceivedMethod:
    return decode_method(encode_method(method, **arguments))


def ack(tag: int, multiple: bool) -> ReceivedMethod:
    return received(methods.BASIC_ACK, delivery_tag=tag, multiple=multiple)


def close(code: int, text: str) -> ReceivedMethod:
    return received(methods.CHANNEL_CLOSE, reply_code=code, reply_text=text)


@pytest.fixture
def connection() -> Connection:
    return Connection()


@pytest.fixture
async def channel(connection: Connection) -> AmqpClientChannel:
    """One that confirms."""
    channel = AmqpClientChannel(1, connection)
    confirming = asyncio.ensure_future(channel.confirm())
    await asyncio.sleep(0)
    channel.on_method(received(methods.CONFIRM_SELECT_OK))
    await confirming
    connection.said()
    return channel


def came_back(key: str, body: bytes = b"", said: BasicProperties = SAID) -> AmqpContent:
    header = encode_header(said, len(body))
    route = encode_route("x", key)
    return AmqpContent(1, "", 0, False, route, header, body, methods.BASIC_RETURN)


async def test_a_confirm_of_many_is_for_those_up_to_it(channel: AmqpClientChannel) -> None:
    posts = [channel.post("x", "k", b"", SAID) for _ in range(4)]
    channel.on_method(ack(4, False))
    channel.on_method(ack(2, True))

    assert [each.done() for each in posts] == [True, True, False, True]


async def test_a_refusal_is_for_that_message(channel: AmqpClientChannel) -> None:
    first, second = channel.post("x", "k", b"", SAID), channel.post("x", "k", b"", SAID)
    channel.on_method(received(methods.BASIC_NACK, delivery_tag=1))
    channel.on_method(ack(2, False))

    with pytest.raises(QueueFull):
        await first
    await second


async def test_a_message_that_comes_back_is_told_from_its_neighbours(
    channel: AmqpClientChannel,
) -> None:
    posts = [channel.post("x", key, b"", SAID, mandatory=True) for key in ("a", "b", "c")]
    channel.on_content(came_back("b"))
    channel.on_method(ack(3, True))

    await posts[0]
    with pytest.raises(NoRoute, match="'x'"):
        await posts[1]
    await posts[2]


async def test_of_messages_to_one_place_properties_tell_which_came_back(
    channel: AmqpClientChannel,
) -> None:
    one, two = BasicProperties(headers={"to": 1}), BasicProperties(headers={"to": 2})
    first = channel.post("x", "k", b"", one, mandatory=True)
    second = channel.post("x", "k", b"", two, mandatory=True)
    channel.on_content(came_back("k", said=two))
    channel.on_method(ack(2, True))

    await first
    with pytest.raises(NoRoute):
        await second


async def test_room_is_there_when_enough_are_safe(channel: AmqpClientChannel) -> None:
    for _ in range(5):
        channel.publish("x", "k", b"", SAID)
    room, all_safe = (
        asyncio.ensure_future(channel.wait_for_confirms(3)),
        asyncio.ensure_future(channel.wait_for_confirms()),
    )
    await asyncio.sleep(0)
    channel.on_method(ack(2, True))
    await room
    assert not all_safe.done()
    channel.on_method(ack(5, True))
    await all_safe


async def test_what_became_of_one_of_many_is_told_to_whoever_asks_for_room(
    channel: AmqpClientChannel,
) -> None:
    channel.publish("x", "a", b"", SAID)
    channel.publish("x", "b", b"", SAID, mandatory=True)
    channel.on_content(came_back("b"))
    channel.on_method(ack(2, True))

    with pytest.raises(NoRoute):
        await channel.wait_for_confirms()
    await channel.wait_for_confirms()


async def test_without_confirms_what_comes_back_is_told_to_the_callback(
    connection: Connection,
) -> None:
    channel = AmqpClientChannel(1, connection)
    returned: list[AmqpContent] = []
    channel.on_returned = returned.append
    channel.publish("x", "k", b"", SAID, mandatory=True)
    channel.on_content(came_back("k"))

    assert [each.key for each in returned] == ["k"]


async def test_a_message_that_nobody_waits_for_any_more_is_given_back(
    channel: AmqpClientChannel, connection: Connection
) -> None:
    getting = asyncio.ensure_future(channel.get("q"))
    again = asyncio.ensure_future(channel.get("q"))
    await asyncio.sleep(0)
    getting.cancel()
    await asyncio.gather(getting, return_exceptions=True)
    connection.said()
    content = AmqpContent(1, "", 7, False, b"\x00\x01q", b"", b"", methods.BASIC_GET_OK)
    channel.on_content(content)
    channel.on_method(received(methods.BASIC_GET_EMPTY))

    [given_back] = connection.said()
    assert given_back.id == methods.BASIC_NACK
    assert (given_back.arguments.delivery_tag, given_back.arguments.requeue) == (7, True)
    assert await again is None


async def test_an_answer_that_nobody_waits_for_any_more_is_not_anothers(
    channel: AmqpClientChannel,
) -> None:
    first = channel.call(methods.QUEUE_DECLARE, queue="a")
    second = channel.call(methods.QUEUE_DECLARE, queue="b")
    first.cancel()
    channel.on_method(received(methods.QUEUE_DECLARE_OK, queue="a"))
    channel.on_method(received(methods.QUEUE_DECLARE_OK, queue="b"))

    assert (await second).queue == "b"


async def test_a_close_is_answered_and_told_to_all_who_wait(
    channel: AmqpClientChannel, connection: Connection
) -> None:
    told: list[Exception] = []
    channel.on_closed = told.append
    call = channel.call(methods.QUEUE_DECLARE, queue="a")
    getting = asyncio.ensure_future(channel.get("q"))
    post = channel.post("x", "k", b"", SAID)
    room = asyncio.ensure_future(channel.wait_for_confirms())
    await asyncio.sleep(0)
    connection.said()
    channel.on_method(close(406, "PRECONDITION_FAILED - durable"))

    for waiting in (call, getting, post, room):
        with pytest.raises(PreconditionFailed, match="durable"):
            await waiting
    assert [type(each) for each in told] == [PreconditionFailed]
    assert [each.id for each in connection.said()] == [methods.CHANNEL_CLOSE_OK]
    assert connection.left == [1]


async def test_a_number_is_given_back_once_when_both_close_at_a_time(
    channel: AmqpClientChannel, connection: Connection
) -> None:
    closing = asyncio.ensure_future(channel.close())
    await asyncio.sleep(0)
    channel.on_method(close(404, "NOT_FOUND - no exchange"))

    await closing
    assert isinstance(channel.failure, NotFound)
    assert connection.left == [1]


async def test_a_close_that_nobody_waits_for_any_more_closes(
    channel: AmqpClientChannel, connection: Connection
) -> None:
    closing = asyncio.ensure_future(channel.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.sleep(0)
    assert connection.left == []
    channel.on_method(received(methods.CHANNEL_CLOSE_OK))
    assert connection.left == [1]
    connection.said()

    with pytest.raises(ChannelError):
        channel.publish("x", "k", b"", SAID)
    await channel.close()
    assert connection.said() == []  # the number may be another's by now


async def test_an_answer_to_who_had_the_number_before_closes_nothing(
    channel: AmqpClientChannel, connection: Connection
) -> None:
    channel.on_method(received(methods.CHANNEL_CLOSE_OK))
    assert connection.left == []


async def test_a_closed_channel_takes_nothing_more(
    channel: AmqpClientChannel, connection: Connection
) -> None:
    closing = asyncio.ensure_future(channel.close())
    await asyncio.sleep(0)
    channel.on_method(received(methods.CHANNEL_CLOSE_OK))
    await closing
    connection.said()
    channel.ack(1)
    channel.reject(2, requeue=True)

    with pytest.raises(ChannelError):
        channel.publish("x", "k", b"", SAID)
    with pytest.raises(ChannelError):
        await channel.call(methods.TX_SELECT)
    assert connection.said() == []
