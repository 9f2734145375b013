"""Functions that a process of the pool is told to call, or not to."""

from __future__ import annotations

import time
from collections.abc import Callable
from subprocess import run as imported
from typing import Final

__all__ = ["Bound", "imported", "keep", "plain", "tell_kept"]

_KEPT: Final[list[Callable[[float], None]]] = []


def plain() -> str:
    return "plain"


class Bound:
    @staticmethod
    def method() -> str:
        return "method"


def keep(progress: Callable[[float], None]) -> None:
    _KEPT.append(progress)


def tell_kept(seconds: float) -> None:
    """Tell the progress of an earlier piece, and take time."""
    _KEPT[0](0.5)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.05)
