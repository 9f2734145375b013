"""When failed work is tried again: later each time, and not all at once."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from penstock.jobs.options import ATTEMPTS


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses double from `first` to `longest` seconds; each is between half and the whole of what
    is due."""

    attempts: int = ATTEMPTS
    first: int = 1
    longest: int = 300

    def pause(self, attempt: int, chance: Callable[[], float] = random.random) -> tuple[int, int]:
        """After so many attempts: what is due in seconds, and what it is to be, in milliseconds."""
        due = min(self.first * 2 ** min(attempt - 1, 30), self.longest)
        return due, max(1, math.ceil(due * 1000 * (0.5 + chance() / 2)))
