"""Publish frames to a broker over MQTT or AMQP, at the pace of their timestamps.

A frame that is published later than its timestamp has the header `x-received-at`: Unix
milliseconds, as text, of the time the broker received it or would have received it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.client import Fabric, MessageSender
from penstock.client.url import BrokerProtocol, protocol_of
from penstock.core.errors import ConfigurationError

if TYPE_CHECKING:
    from penstock_hives.sensors.fleet import SensorFrame


RECEIVED_AT_HEADER: Final = "x-received-at"
#: Frames between two checks that the broker has confirmed all.
_CHECK_EVERY: Final = 10_000


def is_mqtt_url(url: str) -> bool:
    return protocol_of(url) is BrokerProtocol.MQTT


def to_broker_address(topic: str, mqtt: bool) -> str:
    """A topic or topic filter as the protocol writes it."""
    return topic if mqtt else topic.replace("/", ".").replace("+", "*")


class FramePublisher:
    def __init__(self, fabric: Fabric, url: str, stamped: bool) -> None:
        self._fabric = fabric
        self._mqtt = is_mqtt_url(url)
        self._stamped = stamped
        self._senders: dict[str, MessageSender] = {}
        self._unconfirmed: set[MessageSender] = set()
        self.sent = 0

    async def send(self, frame: SensorFrame) -> None:
        """Returns when the next frame may follow; frames of a sensor stay in order."""
        sender = self._senders.get(frame.topic)
        if sender is None:
            sender = self._fabric.publisher(to_broker_address(frame.topic, self._mqtt))
            self._senders[frame.topic] = sender
        headers = {RECEIVED_AT_HEADER: str(frame.at)} if self._stamped else None
        await sender.post(frame.body, headers=headers)
        self._unconfirmed.add(sender)
        self.sent += 1
        if self.sent % _CHECK_EVERY == 0:
            await self.flush()

    async def flush(self) -> None:
        """Returns when the broker has confirmed all frames; raises if it refused one."""
        senders, self._unconfirmed = self._unconfirmed, set()
        for sender in senders:
            await sender.flush()


class FramePacer:
    """Frame times from `first` on, `speed` times as fast as real time; None: without waiting."""

    __slots__ = ("_began", "_clock", "_first", "_speed")

    def __init__(
        self, first: int, speed: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._first = first
        self._speed = speed
        self._clock = clock
        self._began = clock()

    def left(self, at: int) -> float:
        """Seconds until a frame of this time (Unix ms) is due."""
        if self._speed is None:
            return 0.0
        return self._began + (at - self._first) / 1000 / self._speed - self._clock()

    async def wait(self, at: int) -> None:
        if (left := self.left(at)) > 0:
            await asyncio.sleep(left)


def parse_speed(text: str) -> float | None:
    """`60x`, `0.5` or `max`, which is without limit."""
    if text == "max":
        return None
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0.0 < speed < float("inf"):
        raise ConfigurationError(f"speed {text!r}: should be a number such as 60x or 0.5x, or max")
    return speed
