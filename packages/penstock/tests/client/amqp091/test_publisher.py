"""Publishing in bulk, blocking: all of it, in order, whatever becomes of the broker meanwhile."""

from __future__ import annotations

import asyncio
import threading

import pika
import pytest

from penstock.client.amqp091 import blocking_connection
from penstock.client.amqp091.blocking_connection import BlockingConnection
from penstock.client.amqp091.bulk_publisher import BulkPublisher
from penstock.client.errors import BrokerUnreachable
from penstock.core.basic_properties import (
    PERSISTENT,
    BasicProperties,
    encode_header,
    encode_route,
)
from penstock.core.errors import (
    AuthenticationFailed,
    NoRoute,
    NotFound,
    PenstockError,
    QueueFull,
    ResourceExhausted,
)
from penstock.wire.amqp091.address import parse_amqp_url
from penstock.wire.amqp091.methods import (
    CONNECTION_BLOCKED,
    CONNECTION_UNBLOCKED,
    encode_method_frame,
)
from tests.client.line import Line
from tests.fixtures import NewPenstock
from tests.peers import Broker, free_port

COUNT = 3000
SECONDS = 120
UNBLOCKED = encode_method_frame(0, CONNECTION_UNBLOCKED)


def blocked_frame(reason: str) -> bytes:
    return encode_method_frame(0, CONNECTION_BLOCKED, reason=reason)


def publisher(url: str, *, mandatory: bool = True) -> BulkPublisher:
    return BulkPublisher(
        parse_amqp_url(url), "a test", mandatory=mandatory, retry_seconds=float(SECONDS)
    )


def publish(to: BulkPublisher, queue: str, numbers: range) -> None:
    route = encode_route("", queue)
    for number in numbers:
        body = str(number).encode()
        said = BasicProperties(message_id=str(number), delivery_mode=PERSISTENT)
        to.publish(route, encode_header(said, len(body)), body)


def declare(url: str, queue: str, **arguments: object) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    connection.channel().queue_declare(queue, durable=True, arguments=arguments)
    connection.close()


def taken(url: str, queue: str) -> list[int]:
    """All that is in a queue, which is deleted."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    count = channel.queue_declare(queue, passive=True).method.message_count
    found: list[int] = []
    while len(found) < count:
        method, said, body = next(channel.consume(queue, inactivity_timeout=SECONDS))
        assert method is not None, f"{len(found)} of {count} came"
        assert said.message_id == body.decode()
        found.append(int(body))
    channel.cancel()
    channel.queue_delete(queue)
    connection.close()
    return found


def test_all_arrive_once_and_in_order(broker: Broker, name: str) -> None:
    declare(broker.url, name)
    with publisher(broker.url) as to:
        publish(to, name, range(COUNT))
        to.flush()

    assert taken(broker.url, name) == list(range(COUNT))


def test_none_is_lost_when_the_broker_is_killed(new_penstock: NewPenstock) -> None:
    broker = new_penstock()
    declare(broker.url, "q")
    half, killed = threading.Event(), threading.Event()

    def work(to: BulkPublisher) -> None:
        publish(to, "q", range(COUNT // 2))
        half.set()
        killed.wait(SECONDS)
        publish(to, "q", range(COUNT // 2, COUNT))
        to.flush()

    with publisher(broker.url) as to:
        working = threading.Thread(target=work, args=(to,))
        working.start()
        half.wait(SECONDS)
        broker.kill()
        killed.set()
        broker.start()
        working.join(SECONDS)

    assert set(taken(broker.url, "q")) == set(range(COUNT))


def test_an_exchange_of_another_kind_is_used_as_it_is(broker: Broker, name: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare(name, exclusive=True)
        channel.queue_bind(name, "amq.fanout")
        with publisher(broker.url, mandatory=False) as to:
            to.declare_exchange("amq.fanout", "topic")
            to.publish(encode_route("amq.fanout", "k"), encode_header(BasicProperties(), 0), b"")
            to.flush()
        assert channel.basic_get(name, auto_ack=True)[0] is not None


def test_an_exchange_is_declared_where_there_is_none(broker: Broker, name: str) -> None:
    with publisher(broker.url, mandatory=False) as to:
        to.declare_exchange(name, "topic")
        to.publish(encode_route(name, "k"), encode_header(BasicProperties(), 0), b"")
        to.flush()
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(name, "topic", durable=True)  # of any other kind: refused
        channel.exchange_delete(name)
        assert channel.is_open


def test_what_the_broker_refuses_is_an_error(broker: Broker, name: str) -> None:
    with publisher(broker.url) as to:
        publish(to, f"no {name}", range(1))
        with pytest.raises(NoRoute, match=f"'no {name}'"):
            to.flush()
    with publisher(broker.url) as to:
        to.publish(encode_route(f"no {name}", "k"), encode_header(BasicProperties(), 0), b"")
        with pytest.raises(NotFound):
            to.flush()


def test_a_full_queue_is_an_error(broker: Broker, name: str) -> None:
    declare(broker.url, name, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    with publisher(broker.url) as to:
        publish(to, name, range(5))
        with pytest.raises(QueueFull):
            to.flush()
    assert taken(broker.url, name) == [0]


async def test_a_broker_that_asks_senders_to_wait_is_waited_for(line: Line, name: str) -> None:
    blocked = blocked_frame("low on disk")
    to = await asyncio.to_thread(publisher, line.url, mandatory=False)
    line.tell(blocked)
    async with asyncio.timeout(SECONDS):
        while not to._connection.has_input():  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0.01)
    publish(to, name, range(10))
    line.passed = 0
    flushing = asyncio.create_task(asyncio.to_thread(to.flush))
    done, _ = await asyncio.wait([flushing], timeout=0.3)
    assert not done
    assert line.passed == 0
    line.tell(UNBLOCKED)
    async with asyncio.timeout(SECONDS):
        await flushing
    await asyncio.to_thread(to.__exit__, None, None, None)


async def test_a_broker_that_asks_to_wait_in_the_middle_of_a_message_is_waited_for(
    line: Line, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        blocking_connection, "CALL_TIMEOUT_SECONDS", 1.0
    )  # far less than it is made to wait
    await asyncio.to_thread(declare, line.url, name)
    to = await asyncio.to_thread(publisher, line.url)
    before = line.accepted
    line.stop_after(1 << 20, blocked_frame("low on memory"))
    body = b"x" * (32 << 20)  # more than sockets hold
    header = encode_header(BasicProperties(message_id="1"), len(body))
    publishing = asyncio.create_task(
        asyncio.to_thread(to.publish, encode_route("", name), header, body)
    )
    await asyncio.wait_for(line.stopped(), SECONDS)
    done, _ = await asyncio.wait([publishing], timeout=3.0)
    assert not done
    line.go_on()
    line.tell(UNBLOCKED)
    async with asyncio.timeout(SECONDS):
        await publishing
        await asyncio.to_thread(to.flush)
    await asyncio.to_thread(to.__exit__, None, None, None)
    assert line.accepted == before


async def test_a_broker_that_asks_senders_to_wait_for_too_long_is_told(
    line: Line, name: str
) -> None:
    address = parse_amqp_url(line.url)
    to = await asyncio.to_thread(
        BulkPublisher, address, mandatory=False, retry_seconds=float(SECONDS), alarm_seconds=0.1
    )
    line.tell(blocked_frame("low on disk"))
    async with asyncio.timeout(SECONDS):
        while not to._connection.has_input():  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0.01)
    publish(to, name, range(10))
    with pytest.raises(ResourceExhausted, match=r"short of memory or disk.*free some"):
        await asyncio.to_thread(to.flush)
    to._connection.abandon()


def test_a_broker_that_is_not_there_is_named() -> None:
    address = parse_amqp_url(f"amqp://127.0.0.1:{free_port()}/")
    with pytest.raises(BrokerUnreachable, match=str(address.port)):
        BulkPublisher(address, mandatory=True, retry_seconds=0.0)


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
def test_why_a_broker_does_not_let_us_in_is_told(
    broker: Broker, place: str, kind: type[PenstockError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        BlockingConnection(parse_amqp_url(f"amqp://{place.format(broker.port)}"), "a test")
