"""When a frame is due: as it was, so many times faster, or at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from penstock.core.errors import ConfigurationError

Clock = Callable[[], float]


class Pace:
    """Time that begins at a moment and runs `speed` times as fast as it did; None: no waiting."""

    __slots__ = ("_began", "_clock", "_first", "_speed")

    def __init__(self, first: int, speed: float | None, clock: Clock = time.monotonic) -> None:
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
