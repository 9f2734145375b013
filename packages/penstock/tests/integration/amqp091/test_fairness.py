"""A busy neighbour does not keep others from being served: between channels, and connections."""

from __future__ import annotations

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.conftest import Connect
from tests.integration.amqp091.dialogue import wait_on
from tests.peers import Penstock

BACKLOG = 5_000
BODY = bytes(4096)


@pytest.fixture
def broker(penstock: Penstock) -> Penstock:
    """RabbitMQ leaves the turns of channels to its scheduler and promises nothing."""
    return penstock


def fill(channel: BlockingChannel, queue: str) -> None:
    """Twenty megabytes: far more than sockets hold."""
    for _ in range(BACKLOG):
        channel.basic_publish("", queue, BODY)


def test_a_backlog_on_one_channel_leaves_room_for_another(
    connect: Connect, plain_channel: BlockingChannel, name: str
) -> None:
    busy, quiet = f"{name}.busy", f"{name}.quiet"
    for queue in (busy, quiet):
        plain_channel.queue_declare(queue, auto_delete=True)
    fill(plain_channel, busy)
    plain_channel.basic_publish("", quiet, b"me too")
    reader = connect()
    arrivals: list[str] = []
    channels = {queue: reader.channel() for queue in (busy, quiet)}

    for queue, channel in channels.items():
        channel.basic_consume(queue, lambda *_, queue=queue: arrivals.append(queue), auto_ack=True)
    wait_on(channels[quiet], lambda: len(arrivals) == BACKLOG + 1)

    assert arrivals.index(quiet) < BACKLOG / 2


@pytest.mark.parametrize("channels", [2, 3])
def test_channels_with_backlogs_are_served_in_turns(
    connect: Connect, plain_channel: BlockingChannel, name: str, channels: int
) -> None:
    queues = [f"{name}.{number}" for number in range(channels)]
    for queue in queues:
        plain_channel.queue_declare(queue, auto_delete=True)
        fill(plain_channel, queue)
    reader = connect()
    arrivals: list[str] = []
    readers = {queue: reader.channel() for queue in queues}

    for queue, channel in readers.items():
        channel.basic_consume(queue, lambda *_, queue=queue: arrivals.append(queue), auto_ack=True)
    wait_on(readers[queues[0]], lambda: len(arrivals) == channels * BACKLOG)

    finished = [len(arrivals) - arrivals[::-1].index(queue) for queue in queues]
    assert min(finished) > 1.5 * BACKLOG, "one was served to the end before the others"


def test_consumers_of_one_channel_are_served_in_turns(
    connect: Connect, plain_channel: BlockingChannel, name: str
) -> None:
    queues = [f"{name}.{number}" for number in range(2)]
    for queue in queues:
        plain_channel.queue_declare(queue, auto_delete=True)
        fill(plain_channel, queue)
    channel = connect().channel()
    arrivals: list[str] = []

    for queue in queues:
        channel.basic_consume(queue, lambda *_, queue=queue: arrivals.append(queue), auto_ack=True)
    wait_on(channel, lambda: len(arrivals) == 2 * BACKLOG)

    finished = [len(arrivals) - arrivals[::-1].index(queue) for queue in queues]
    assert min(finished) > 1.5 * BACKLOG
