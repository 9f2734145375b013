"""pika's asynchronous connection: many messages in flight, confirms as they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
from pika.channel import Channel

COUNT = 2000


class Exchange:
    """Publishes COUNT messages with confirms and consumes them on a second channel."""

    def __init__(self, url: str, queue: str) -> None:
        self.queue = queue
        self.received: list[bytes] = []
        self.confirmed = 0
        self.failure: object = None
        self.connection = pika.SelectConnection(
            pika.URLParameters(url),
            on_open_callback=self._opened,
            on_open_error_callback=self._failed,
            on_close_callback=self._closed,
        )

    def run(self) -> None:
        self.connection.ioloop.call_later(60, lambda: self._failed(None, "it takes too long"))
        self.connection.ioloop.start()

    def _opened(self, connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=self._consume)

    def _consume(self, channel: Channel) -> None:
        def publish_next(_: Any) -> None:
            self.connection.channel(on_open_callback=self._publish)

        def consume(_: Any) -> None:
            channel.basic_consume(self.queue, self._arrived, callback=publish_next)

        def limit(_: Any) -> None:
            channel.basic_qos(prefetch_count=100, callback=consume)

        channel.queue_declare(self.queue, exclusive=True, callback=limit)

    def _publish(self, channel: Channel) -> None:
        def publish(_: Any) -> None:
            for number in range(COUNT):
                channel.basic_publish("", self.queue, b"%d" % number)

        channel.confirm_delivery(self._confirmed(), callback=publish)

    def _confirmed(self) -> Callable[[Any], None]:
        def confirmed(arrived: Any) -> None:
            assert arrived.method.NAME == "Basic.Ack"
            tag: int = arrived.method.delivery_tag
            self.confirmed = max(self.confirmed, tag) if arrived.method.multiple else tag
            self._finish()

        return confirmed

    def _arrived(self, channel: Channel, method: Any, _: Any, body: bytes) -> None:
        self.received.append(body)
        channel.basic_ack(method.delivery_tag)
        self._finish()

    def _finish(self) -> None:
        if len(self.received) == COUNT and self.confirmed == COUNT:
            self.connection.close()

    def _failed(self, _: Any, error: object) -> None:
        self.failure = error
        self.connection.ioloop.stop()

    def _closed(self, _: Any, error: object) -> None:
        self.connection.ioloop.stop()


def test_messages_flow_and_are_confirmed(broker_url: str, name: str) -> None:
    exchange = Exchange(broker_url, name)

    exchange.run()

    assert exchange.failure is None
    assert exchange.received == [b"%d" % number for number in range(COUNT)]
