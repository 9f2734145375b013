"""AMQP clients for tests of the bridge: someone who listens on a topic exchange."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.peers import Broker, MqttBroker

PATIENCE = 60


class AmqpMqttBroker(Broker, MqttBroker, Protocol):
    """A broker that speaks both."""


@dataclass(frozen=True)
class Delivered:
    exchange: str
    key: str
    redelivered: bool
    properties: pika.BasicProperties
    body: bytes


def everything(_: Delivered) -> bool:
    return True


class Listener:
    """A queue of its own, bound to the exchange MQTT publishes to."""

    def __init__(
        self,
        channel: BlockingChannel,
        pattern: str,
        wanted: Callable[[Delivered], bool] = everything,
    ) -> None:
        self._channel = channel
        self._wanted = wanted
        self.queue: str = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(self.queue, "amq.topic", pattern)

    def next(self) -> Delivered:
        """The next message that is wanted; one broker serves all tests, so there may be others."""
        for method, properties, body in self._channel.consume(
            self.queue, auto_ack=True, inactivity_timeout=PATIENCE
        ):
            assert method is not None, "nothing has come"
            found = Delivered(
                method.exchange, method.routing_key, method.redelivered, properties, body
            )
            if self._wanted(found):
                break
        return found
