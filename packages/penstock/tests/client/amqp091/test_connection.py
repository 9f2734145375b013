"""A connection to a broker: messages, transactions, refusals, and how it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import AmqpClientConnection, connect
from penstock.client.errors import BrokerUnreachable
from penstock.core.basic_properties import BasicProperties, decode_header
from penstock.core.errors import (
    AuthenticationFailed,
    ConfigurationError,
    NoRoute,
    NotFound,
    PreconditionFailed,
    QueueFull,
)
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.address import parse_amqp_url
from penstock.wire.amqp091.content import AmqpContent
from penstock.wire.amqp091.errors import AmqpConnectionLost
from penstock.wire.amqp091.methods import encode_method_frame
from tests.client.line import Line
from tests.client.test_tls import write_certificate
from tests.fixtures import NewPenstock
from tests.peers import Broker, free_port

SECONDS = 60
SAID = BasicProperties("text/plain", {"n": 7, "half": 0.1}, message_id="m")


class Inbox:
    """What has come to a channel."""

    def __init__(self, channel: AmqpClientChannel) -> None:
        self.contents: list[AmqpContent] = []
        self._news = asyncio.Event()
        channel.on_deliveries = self._take

    def _take(self, contents: list[AmqpContent]) -> None:
        self.contents += contents
        self._news.set()

    async def until(self, count: int) -> list[AmqpContent]:
        async with asyncio.timeout(SECONDS):
            while len(self.contents) < count:
                self._news.clear()
                await self._news.wait()
        return self.contents


async def test_messages_come_as_they_were_sent(channel: AmqpClientChannel, name: str) -> None:
    await channel.declare_queue(name, exclusive=True)
    await channel.bind(name, "amq.topic", f"{name}.#")
    inbox = Inbox(channel)
    await channel.consume(name, "me")
    bodies = [b"", b"small", b"x" * 300_000]
    for body in bodies:
        channel.publish("amq.topic", f"{name}.key", body, SAID)

    found = await inbox.until(len(bodies))

    assert [each.body for each in found] == bodies
    assert {(each.consumer, each.exchange, each.key) for each in found} == {
        ("me", "amq.topic", f"{name}.key")
    }
    assert [decode_header(each.header) for each in found] == [SAID] * 3


async def test_no_more_come_than_may_be_unacknowledged(
    channel: AmqpClientChannel, name: str
) -> None:
    await channel.declare_queue(name, exclusive=True)
    for number in range(10):
        channel.publish("", name, str(number).encode(), BasicProperties())
    inbox = Inbox(channel)
    await channel.prefetch(3)
    await channel.consume(name, "me")
    await inbox.until(3)
    await channel.prefetch(3)  # an answer behind whatever else was on its way
    assert len(inbox.contents) == 3
    channel.ack(inbox.contents[1].tag, multiple=True)

    found = await inbox.until(5)

    assert [each.body for each in found] == [b"0", b"1", b"2", b"3", b"4"]


async def test_messages_can_be_asked_for_one_by_one(channel: AmqpClientChannel, name: str) -> None:
    await channel.declare_queue(name, exclusive=True)
    channel.publish("", name, b"one", SAID)
    content = await channel.get(name)
    assert content is not None
    assert (content.body, content.redelivered) == (b"one", False)
    assert await channel.get(name) is None
    channel.reject(content.tag, requeue=True)
    again = await channel.get(name)

    assert again is not None
    assert (again.body, again.redelivered) == (b"one", True)


async def test_what_is_confirmed_is_there_and_what_is_not_is_told(
    channel: AmqpClientChannel, name: str
) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    await channel.declare_queue(name, exclusive=True, arguments=arguments)
    await channel.confirm()
    await channel.publish_confirmed("", name, b"fits", BasicProperties(), mandatory=True)

    with pytest.raises(QueueFull):
        await channel.publish_confirmed("", name, b"does not", BasicProperties())
    with pytest.raises(NoRoute):
        await channel.publish_confirmed("", f"no {name}", b"", BasicProperties(), mandatory=True)
    content = await channel.get(name, no_ack=True)
    assert content is not None
    assert content.body == b"fits"


async def test_many_are_published_with_a_window_and_are_safe_in_the_end(
    channel: AmqpClientChannel, name: str
) -> None:
    await channel.declare_queue(name, exclusive=True)
    await channel.confirm()
    async with asyncio.timeout(SECONDS):
        for number in range(3000):
            channel.publish("", name, str(number).encode(), BasicProperties())
            if number % 100 == 0:
                await channel.wait_for_confirms(500)
        await channel.wait_for_confirms()

    declared = await channel.declare_queue(name, exclusive=True)
    assert declared.message_count == 3000


async def test_a_transaction_happens_as_a_whole_or_not_at_all(
    connection: AmqpClientConnection, channel: AmqpClientChannel, name: str
) -> None:
    await channel.declare_queue(name, exclusive=True)
    other = await connection.channel()
    await channel.select()
    channel.publish("", name, b"dropped", BasicProperties())
    await channel.rollback()
    channel.publish("", name, b"kept", BasicProperties())
    assert await other.get(name) is None
    await channel.commit()

    content = await other.get(name)
    assert content is not None
    assert content.body == b"kept"


async def test_a_refusal_closes_its_channel_and_no_other(
    connection: AmqpClientConnection, channel: AmqpClientChannel, name: str
) -> None:
    await channel.declare_queue(name, exclusive=True)
    other = await connection.channel()
    with pytest.raises(PreconditionFailed, match=name):
        await other.declare_queue(name, exclusive=True, arguments={"x-max-length": 5})

    assert isinstance(other.failure, PreconditionFailed)
    assert (await connection.channel()).number == other.number
    assert (await channel.declare_queue(name, exclusive=True)).queue == name


async def test_a_channel_that_nobody_waits_for_any_more_gives_its_number_back(
    line: Line, name: str
) -> None:
    connection = await connect(parse_amqp_url(line.url), "test")
    line.hold()
    opening = asyncio.create_task(connection.channel())
    async with asyncio.timeout(SECONDS):
        await line.wait_for_bytes(1)
    opening.cancel()
    await asyncio.wait([opening])
    line.release()

    async with asyncio.timeout(SECONDS):
        second = await connection.channel()
        await second.declare_queue(name, exclusive=True)  # both answers to the first came before
        third = await connection.channel()

    assert (second.number, third.number) == (2, 1)
    await connection.close()


async def test_a_queue_that_is_deleted_ends_its_consumers(
    connection: AmqpClientConnection, channel: AmqpClientChannel, name: str
) -> None:
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    await channel.declare_queue(name, exclusive=True)
    channel.on_cancelled = ended.set_result
    await channel.consume(name, "me")
    await (await connection.channel()).delete_queue(name)

    async with asyncio.timeout(SECONDS):
        assert await ended == "me"


@pytest.mark.parametrize(
    ("place", "kind", "words"),
    [
        (
            "guest:wrong@127.0.0.1:{}",
            AuthenticationFailed,
            "authentication failed for user 'guest'",
        ),
        ("guest:guest@127.0.0.1:{}/nowhere", NotFound, "'nowhere'"),
    ],
    ids=["password", "vhost"],
)
async def test_why_a_broker_does_not_let_us_in_is_told(
    broker: Broker, place: str, kind: type[Exception], words: str, quiet: None
) -> None:
    with pytest.raises(kind, match=words):
        await connect(parse_amqp_url(f"amqp://{place.format(broker.port)}"), "a test")


async def test_where_nobody_listens_is_told(quiet: None) -> None:
    with pytest.raises(BrokerUnreachable, match="connection refused"):
        await connect(parse_amqp_url(f"amqp://127.0.0.1:{free_port()}"), "a test")


async def test_everybody_who_waits_is_told_that_a_connection_broke(
    line: Line, name: str, quiet: None
) -> None:
    connection = await connect(parse_amqp_url(line.url), "a test")
    channel = await connection.channel()
    await channel.confirm()
    line.hold()
    waiting: list[asyncio.Future[Any]] = [
        channel.call(methods.QUEUE_DECLARE, queue=name),
        asyncio.ensure_future(channel.get(name)),
        channel.post("", name, b"", BasicProperties()),
        asyncio.ensure_future(channel.wait_for_confirms()),
        asyncio.ensure_future(connection.channel()),
    ]
    await line.wait_for_bytes(1)
    line.cut()

    async with asyncio.timeout(SECONDS):
        found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in found] == [AmqpConnectionLost] * 5
    assert connection.lost.done()
    with pytest.raises(AmqpConnectionLost):
        await connection.channel()


async def test_nobody_need_wait_for_a_connection_that_breaks(
    line: Line, name: str, quiet: None
) -> None:
    connection = await connect(parse_amqp_url(line.url), "a test")
    channel = await connection.channel()
    await channel.confirm()
    line.hold()
    channel.call(methods.QUEUE_DECLARE, queue=name)
    channel.post("", name, b"", BasicProperties())
    await line.wait_for_bytes(1)
    line.cut()
    async with asyncio.timeout(SECONDS):
        await asyncio.shield(connection.lost)
    channel.call(methods.TX_SELECT)
    assert isinstance(channel.failure, AmqpConnectionLost)  # and `quiet`: nobody has complained


async def test_senders_wait_while_the_broker_asks_them_to(line: Line, name: str) -> None:
    connection = await connect(parse_amqp_url(line.url), "a test")
    channel = await connection.channel()
    await channel.declare_queue(name, exclusive=True)
    await channel.confirm()
    line.tell(encode_method_frame(0, methods.CONNECTION_BLOCKED, reason="low on disk"))
    await channel.declare_queue(name, exclusive=True)  # an answer behind it
    assert connection.blocked
    sending = asyncio.create_task(channel.publish_confirmed("", name, b"late", BasicProperties()))
    assert (await channel.declare_queue(name, exclusive=True)).message_count == 0
    line.tell(encode_method_frame(0, methods.CONNECTION_UNBLOCKED))
    async with asyncio.timeout(SECONDS):
        await sending

    assert (await channel.declare_queue(name, exclusive=True)).message_count == 1
    await connection.close()


async def test_a_broker_that_falls_silent_is_given_up(quiet: None) -> None:
    async def open_and_be_silent(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(encode_method_frame(0, methods.CONNECTION_START, version_minor=9))
        writer.write(encode_method_frame(0, methods.CONNECTION_TUNE, heartbeat=1))
        writer.write(encode_method_frame(0, methods.CONNECTION_OPEN_OK))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(open_and_be_silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = await connect(parse_amqp_url(f"amqp://127.0.0.1:{port}"), "a test")
    async with asyncio.timeout(SECONDS):
        error = await asyncio.shield(connection.lost)
    server.close()
    await server.wait_closed()

    assert isinstance(error, AmqpConnectionLost)
    assert "no heartbeat" in str(error)


async def test_over_tls_a_broker_has_to_be_trusted(
    new_penstock: NewPenstock, tmp_path: Path, name: str, quiet: None
) -> None:
    certificate, key = write_certificate(tmp_path)
    port = free_port()
    new_penstock(
        *("--listen", f"amqps://127.0.0.1:{port}"),
        *("--set", f"broker.tls.certificate={certificate}"),
        *("--set", f"broker.tls.key={key}"),
    )
    with pytest.raises(ConfigurationError, match=r"certificate not trusted.*cafile="):
        await connect(parse_amqp_url(f"amqps://127.0.0.1:{port}"), "a test")
    with pytest.raises(ConfigurationError, match="should be a file"):
        await connect(parse_amqp_url(f"amqps://127.0.0.1:{port}?cafile=/no/such"), "a test")

    connection = await connect(
        parse_amqp_url(f"amqps://127.0.0.1:{port}?cafile={certificate}"), "a test"
    )
    channel = await connection.channel()
    await channel.declare_queue(name, exclusive=True)
    await channel.confirm()
    await channel.publish_confirmed("", name, b"x" * 200_000, BasicProperties())
    content = await channel.get(name)
    assert content is not None
    assert len(content.body) == 200_000
    await connection.close()
    assert isinstance(connection.lost.result(), AmqpConnectionLost)
