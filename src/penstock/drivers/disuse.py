"""A queue nobody uses may have a time to live (`x-expires`); by default it has none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.broker.kernel import Kernel


class Disuse:
    __slots__ = ("_die", "_kernel", "_milliseconds", "_timer")

    def __init__(self, kernel: Kernel, milliseconds: int | None, die: Callable[[], None]) -> None:
        self._kernel = kernel
        self._milliseconds = milliseconds
        self._die = die
        self._timer: asyncio.TimerHandle | None = None

    def used(self, still: bool) -> None:
        """Somebody showed an interest: its time begins again, or stands still while in use."""
        if self._milliseconds is None:
            return
        self.close()
        if not still:
            when = self._kernel.loop.time() + self._milliseconds / 1000
            self._timer = self._kernel.turn.at(when, self._die)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
