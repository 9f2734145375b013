"""Waiting for what a program of ours has written: a driver takes its time on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tests.peers import Process

SECONDS: Final = 300.0


def until(process: Process, holds: Callable[[str], bool]) -> None:
    """Returns when that holds of the output; fails, and shows it, when the program ends before."""
    deadline = time.monotonic() + SECONDS
    while not holds(process.output()):
        running = process.running() and time.monotonic() < deadline
        assert running or holds(process.output()), process.output()[-4000:]
        time.sleep(0.02)
