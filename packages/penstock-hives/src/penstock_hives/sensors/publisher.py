"""Publish frames to a broker over MQTT or AMQP, at the pace of their timestamps.

A frame that is published later than its timestamp has the header `x-received-at`: Unix
milliseconds, as text, of the time the broker received it or would have received it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from penstock.client import Fabric, MessageSender
from penstock.core.errors import ConfigurationError

if TYPE_CHECKING:
    from penstock_hives.sensors.fleet import SensorFrame


RECEIVED_AT_HEADER: Final = "x-received-at"
#: So often we look whether the broker has taken what was posted.
_CHECK_EVERY: Final = 10_000
_MQTT: Final = ("mqtt", "mqtts", "ws", "wss")


def is_mqtt_url(url: str) -> bool:
    return urlsplit(url).scheme in _MQTT


def to_broker_address(topic: str, mqtt: bool) -> str:
    """A topic or a pattern of topics, for the protocol that is spoken."""
    return topic if mqtt else topic.replace("/", ".").replace("+", "*")


class FramePublisher:
    def __init__(self, fabric: Fabric, url: str, stamped: bool) -> None:
        self._fabric = fabric
        self._mqtt = is_mqtt_url(url)
        self._stamped = stamped
        self._outflows: dict[str, MessageSender] = {}
        self._unsure: set[MessageSender] = set()
        self.sent = 0

    async def send(self, frame: SensorFrame) -> None:
        """Returns when there is room for the next; in order, for each sensor."""
        outflow = self._outflows.get(frame.topic)
        if outflow is None:
            outflow = self._fabric.publisher(to_broker_address(frame.topic, self._mqtt))
            self._outflows[frame.topic] = outflow
        headers = {RECEIVED_AT_HEADER: str(frame.at)} if self._stamped else None
        await outflow.post(frame.body, headers=headers)
        self._unsure.add(outflow)
        self.sent += 1
        if self.sent % _CHECK_EVERY == 0:
            await self.flush()

    async def flush(self) -> None:
        """Returns when the broker has all of it safe; raises what it said if it has not."""
        unsure, self._unsure = self._unsure, set()
        for outflow in unsure:
            await outflow.flush()


MonotonicClock = Callable[[], float]


class FramePacer:
    """Time that begins at a moment and runs `speed` times as fast as it did; None: no waiting."""

    __slots__ = ("_began", "_clock", "_first", "_speed")

    def __init__(
        self, first: int, speed: float | None, clock: MonotonicClock = time.monotonic
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
    """`60x`, `0.5` or `max`, which is as fast as it goes."""
    if text == "max":
        return None
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0.0 < speed < float("inf"):
        raise ConfigurationError(f"speed {text!r}: should be a number such as 60x or 0.5x, or max")
    return speed
