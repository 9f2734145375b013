"""Posts from a broker: what to bind to, and what comes of it.

A queue has a name that lasts, so that what is announced while we are away waits, and that several
instances share it. It is bound to each exchange by the topics that are asked for. Over AMQP 0-9-1
that is `queue.py`; here is the way over the client's patterns, for MQTT and AMQP 1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit

from penstock.client import Fabric, Message
from penstock.core.errors import ConfigurationError
from penstock.pump.flow.letter import Letter, letter_of
from penstock.pump.posts.topics import mqtt_filter

MQTT: Final = ("mqtt", "mqtts", "ws", "wss")
AMQP091: Final = ("amqp", "amqps")


@dataclass(frozen=True, slots=True)
class Binding:
    exchange: str
    prefix: str = "v02.post"
    subtopic: str = "#"

    @property
    def key(self) -> str:
        return f"{self.prefix}.{self.subtopic}"


class Heard(Protocol):
    """A message, and the word that it is done with."""

    @property
    def letter(self) -> Letter: ...

    async def ack(self) -> None: ...


class Hearing(Protocol):
    """Receives across reconnects."""

    async def open(self) -> None:
        """From here on what is announced arrives."""

    async def receive(self) -> Sequence[Heard]:
        """All that has come, one at least; may be given up (cancelled) at any time."""

    async def queued(self) -> int | None:
        """How many messages wait at the broker, where it tells."""

    async def close(self) -> None: ...


def over_mqtt(url: str) -> bool:
    return urlsplit(url).scheme in MQTT


def over_amqp091(url: str) -> bool:
    return urlsplit(url).scheme in AMQP091


@dataclass(frozen=True, slots=True)
class Came:
    """Keeps `Heard`."""

    letter: Letter
    message: Message

    async def ack(self) -> None:
        await self.message.ack()


class Subscribed:
    """Keeps `Hearing`: one session of the client's, or a share of it where several instances
    run."""

    def __init__(
        self, fabric: Fabric, url: str, bindings: Sequence[Binding], queue: str, prefetch: int
    ) -> None:
        if over_mqtt(url):
            filters = [mqtt_filter(each.exchange, each.prefix, each.subtopic) for each in bindings]
            self._inflow = fabric.subscribe(*filters, name=queue, prefetch=prefetch)
        else:
            exchanges = {each.exchange for each in bindings}
            if len(exchanges) > 1:
                raise ConfigurationError("several exchanges can be heard over amqp:// and MQTT")
            keys = [each.key for each in bindings]
            self._inflow = fabric.subscribe(
                *keys, name=queue, exchange=exchanges.pop(), prefetch=prefetch
            )

    async def open(self) -> None:
        await self._inflow.open()

    async def receive(self) -> Sequence[Heard]:
        message = await self._inflow.receive()
        return [Came(letter_of(message), message)]

    async def queued(self) -> int | None:
        return None

    async def close(self) -> None:
        await self._inflow.close()
