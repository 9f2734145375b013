"""What a restart keeps, be it clean or not: durable topology, persistent messages, streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.fixtures import NewPenstock, needed, running
from tests.peers import Broker, RabbitMQ

PERSISTENT = pika.BasicProperties(delivery_mode=2)
TRANSIENT = pika.BasicProperties(delivery_mode=1)


def rabbitmq_departs(how: str) -> pytest.MarkDecorator:
    """Only for Penstock, because RabbitMQ does this instead."""
    assert how
    return pytest.mark.parametrize("broker", ["penstock"], indirect=True)


@pytest.fixture(
    params=["penstock", pytest.param("rabbitmq", marks=[pytest.mark.peer, pytest.mark.slow])]
)
def broker(
    request: pytest.FixtureRequest, new_penstock: NewPenstock, tmp_path: Path
) -> Iterator[Broker]:
    """A broker of the test's own, to be stopped and started."""
    if request.param == "penstock":
        yield new_penstock()
        return
    with running(needed(RabbitMQ, tmp_path / "rabbitmq")) as server:
        yield server


@pytest.fixture(params=["stop", "kill"])
def restart(request: pytest.FixtureRequest, broker: Broker) -> Callable[[], None]:
    def stop_and_start() -> None:
        getattr(broker, request.param)()
        broker.start()

    return stop_and_start


def connect(broker: Broker) -> BlockingChannel:
    """A confirming channel: what was published is safe when `basic_publish` returns."""
    channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
    channel.confirm_delivery()
    return channel


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    return list(iter(lambda: channel.basic_get(queue, auto_ack=True)[2], None))


def test_persistent_messages_stay_in_order_and_transient_ones_go(
    broker: Broker, restart: Callable[[], None]
) -> None:
    channel = connect(broker)
    channel.queue_declare("work", durable=True)
    for number in range(20):
        properties = PERSISTENT if number % 2 == 0 else TRANSIENT
        channel.basic_publish("", "work", b"%d" % number, properties)

    restart()

    assert bodies(connect(broker), "work") == [b"%d" % number for number in range(0, 20, 2)]


@rabbitmq_departs("does not promise this when it is killed")
def test_what_was_acknowledged_stays_gone(broker: Broker, restart: Callable[[], None]) -> None:
    channel = connect(broker)
    channel.queue_declare("work", durable=True)
    for number in range(6):
        channel.basic_publish("", "work", b"%d" % number, PERSISTENT)
    tags = [channel.basic_get("work")[0].delivery_tag for _ in range(4)]
    channel.basic_ack(tags[0])
    channel.basic_ack(tags[2])
    channel.queue_declare("work", passive=True)

    restart()

    assert bodies(connect(broker), "work") == [b"1", b"3", b"4", b"5"]


def test_what_was_out_is_marked_redelivered(broker: Broker, restart: Callable[[], None]) -> None:
    channel = connect(broker)
    channel.queue_declare("work", durable=True)
    channel.basic_publish("", "work", b"job", PERSISTENT)
    channel.basic_get("work")
    channel.queue_declare("work", passive=True)

    restart()

    method, _, body = connect(broker).basic_get("work")
    assert (body, method.redelivered) == (b"job", True)


def test_durable_topology_stays(broker: Broker, restart: Callable[[], None]) -> None:
    channel = connect(broker)
    channel.exchange_declare("in", "topic", durable=True)
    channel.exchange_declare("out", "headers", durable=True)
    channel.exchange_bind("out", "in", "a.#")
    channel.queue_declare("plain", durable=True)
    channel.queue_bind("plain", "in", "a.*")
    channel.queue_declare("picky", durable=True, arguments={"x-max-length": 1})
    channel.queue_bind("picky", "out", "", {"x-match": "all", "kind": "b"})

    restart()

    channel = connect(broker)
    for kind in ("a", "b", "b"):
        properties = pika.BasicProperties(headers={"kind": kind})
        channel.basic_publish("in", "a.x", kind.encode(), properties)
    assert bodies(channel, "plain") == [b"a", b"b", b"b"]
    assert bodies(channel, "picky") == [b"b"]
    channel.queue_declare("picky", durable=True, arguments={"x-max-length": 1})


@pytest.mark.parametrize(
    "declare",
    [
        lambda channel: channel.queue_declare("fleeting"),
        lambda channel: channel.queue_declare("fleeting", durable=True, exclusive=True),
    ],
    ids=["transient", "exclusive"],
)
def test_what_is_not_durable_goes(
    broker: Broker, restart: Callable[[], None], declare: Callable[[BlockingChannel], None]
) -> None:
    declare(connect(broker))

    restart()

    with pytest.raises(ChannelClosedByBroker) as caught:
        connect(broker).queue_declare("fleeting", passive=True)
    assert caught.value.reply_code == 404


def test_what_was_deleted_stays_deleted(broker: Broker, restart: Callable[[], None]) -> None:
    channel = connect(broker)
    channel.queue_declare("work", durable=True)
    channel.basic_publish("", "work", b"old", PERSISTENT)
    channel.queue_delete("work")
    channel.queue_declare("work", durable=True)

    restart()

    assert bodies(connect(broker), "work") == []


def test_a_purged_queue_stays_empty(broker: Broker, restart: Callable[[], None]) -> None:
    channel = connect(broker)
    channel.queue_declare("work", durable=True)
    channel.basic_publish("", "work", b"old", PERSISTENT)
    channel.queue_purge("work")

    restart()

    assert bodies(connect(broker), "work") == []


def test_priorities_are_kept(broker: Broker, restart: Callable[[], None]) -> None:
    channel = connect(broker)
    channel.queue_declare("urgent", durable=True, arguments={"x-max-priority": 5})
    for priority in (1, 5, 3):
        properties = pika.BasicProperties(delivery_mode=2, priority=priority)
        channel.basic_publish("", "urgent", b"%d" % priority, properties)

    restart()

    assert bodies(connect(broker), "urgent") == [b"5", b"3", b"1"]


def test_large_messages_are_kept(broker: Broker, restart: Callable[[], None]) -> None:
    channel = connect(broker)
    channel.queue_declare("work", durable=True)
    sent = [b"small", b"large" * 300_000, b"last"]
    for body in sent:
        channel.basic_publish("", "work", body, PERSISTENT)

    restart()

    assert bodies(connect(broker), "work") == sent


@rabbitmq_departs("serves its streams some time after it is up")
def test_a_stream_is_kept_with_its_offsets(broker: Broker, restart: Callable[[], None]) -> None:
    channel = connect(broker)
    channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
    for number in range(10):
        channel.basic_publish("", "stream", b"%d" % number)

    restart()

    channel = connect(broker)
    channel.basic_publish("", "stream", b"10")
    channel.basic_qos(prefetch_count=100)
    found = []
    for _, properties, body in channel.consume("stream", arguments={"x-stream-offset": 4}):
        found.append((properties.headers["x-stream-offset"], body))
        if body == b"10":
            break
    assert found == [(number, b"%d" % number) for number in range(4, 11)]


def test_a_clean_stop_says_good_bye(broker: Broker) -> None:
    channel = connect(broker)

    broker.stop()

    with pytest.raises(pika.exceptions.AMQPConnectionError) as caught:
        channel.connection.process_data_events(10)
    assert (caught.value.args[0], "CONNECTION_FORCED" in str(caught.value)) == (320, True)
