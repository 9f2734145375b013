"""Functions that a process of the pool is told to call, or not to."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
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


def start_daemon(place: str) -> None:
    """In a session of its own, without our environment; its number is written to the place."""
    daemon = Popen(["/bin/sleep", "600"], start_new_session=True, env={})
    draft = Path(f"{place}.draft")
    draft.write_text(str(daemon.pid))
    draft.rename(place)
    time.sleep(600)
