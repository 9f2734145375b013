"""The words conformance tests are written in: an inbox that collects, an error that must come.

Nothing here sleeps to wait. `Inbox.take` waits for deliveries, `Inbox.settle` for the answer to a
question put to the queue after them: a broker answers in order, so what has not arrived by then
was not sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

#: Long enough for a busy machine; a test that works never waits this long.
PATIENCE: Final = 60.0


@dataclass(frozen=True)
class Arrival:
    """A delivery as it came."""

    method: Any
    properties: Any
    body: bytes

    @property
    def tag(self) -> int:
        tag: int = self.method.delivery_tag
        return tag

    @property
    def headers(self) -> dict[str, Any]:
        return self.properties.headers or {}


class Inbox:
    """A consumer that keeps what it is sent."""

    def __init__(self, channel: BlockingChannel, queue: str, **options: Any) -> None:
        self.channel = channel
        self.queue = queue
        self.arrivals: list[Arrival] = []
        self.tag: str = channel.basic_consume(queue, self._arrived, **options)

    def _arrived(self, channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        self.arrivals.append(Arrival(method, properties, body))

    @property
    def bodies(self) -> list[bytes]:
        return [arrival.body for arrival in self.arrivals]

    def take(self, count: int = 1) -> list[Arrival]:
        """Wait for this many and take them out."""
        wait_on(self.channel, lambda: len(self.arrivals) >= count)
        taken, self.arrivals = self.arrivals[:count], self.arrivals[count:]
        return taken

    def take_bodies(self, count: int) -> list[bytes]:
        return [arrival.body for arrival in self.take(count)]

    def settle(self) -> list[Arrival]:
        """What has arrived when the broker has nothing more to send for now."""
        self.channel.queue_declare(self.queue, passive=True)
        self.channel.connection.process_data_events(0)
        return self.arrivals


def wait_on(channel: BlockingChannel, condition: Callable[[], bool]) -> None:
    """Let events come in until the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        channel.connection.process_data_events(0.1)


def until(condition: Callable[[], bool]) -> None:
    """For what sends no event: ask again and again."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@contextmanager
def channel_error(code: int, text: str = "") -> Iterator[None]:
    """The broker closes the channel with this code, and says so in these words."""
    with pytest.raises(ChannelClosedByBroker) as caught:
        yield
    assert (caught.value.reply_code, text in caught.value.reply_text) == (code, True), caught.value


@contextmanager
def connection_error(code: int, text: str = "") -> Iterator[None]:
    """The broker closes the connection with this code, and says so in these words."""
    with pytest.raises(ConnectionClosedByBroker) as caught:
        yield
    assert (caught.value.reply_code, text in caught.value.reply_text) == (code, True), caught.value


def round_trip(channel: BlockingChannel) -> None:
    """Wait for an answer: errors of what was sent before have come by then."""
    channel.queue_declare("", exclusive=True, auto_delete=True)


def get_body(channel: BlockingChannel, queue: str) -> bytes | None:
    """Take one message, or None when there is none."""
    body: bytes | None = channel.basic_get(queue, auto_ack=True)[2]
    return body


def get_bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    """Take all there is."""
    return list(iter(lambda: get_body(channel, queue), None))


def count(channel: BlockingChannel, queue: str) -> int:
    """How many messages are ready in the queue."""
    ready: int = channel.queue_declare(queue, passive=True).method.message_count
    return ready


def exists(connect: Callable[[], pika.BlockingConnection], queue: str) -> bool:
    channel = connect().channel()
    try:
        channel.queue_declare(queue, passive=True)
    except ChannelClosedByBroker as closed:
        if closed.reply_code != 404:
            raise
        return False
    return True
