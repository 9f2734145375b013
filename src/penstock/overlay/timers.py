"""Something to be done later: the loop's timers in a broker, a clock of their own in tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Handle(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    def later(self, seconds: float, action: Callable[[], None]) -> Handle: ...
