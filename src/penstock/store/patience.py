"""Trying again: how long, how often, and which faults deserve it.

    attempt(lambda: apply(batch), Patience(total=60.0))

The work is run from its beginning each time, so it must be one transaction or safe to repeat. Only
faults that time may cure are tried again (`errors.passing`); the last one is raised when patience
ends.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from penstock.core.logs import get_logger
from penstock.store.errors import passing

log = get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """Pauses that double from `first` to `longest` seconds, until `total` seconds have passed."""

    first: float = 0.1
    longest: float = 5.0
    total: float = 60.0

    def pauses(self, chance: Callable[[], float] = random.random) -> Iterator[float]:
        """Each between half and the whole of what is due: many that wait do not come at once."""
        due = self.first
        while True:
            yield due * (0.5 + chance() / 2)
            due = min(due * 2, self.longest)


def attempt(
    work: Callable[[], T],
    patience: Patience | None = None,
    *,
    pause: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """What the work gives, once it succeeds. `pause` may raise to give up early."""
    limits = patience or Patience()
    end = clock() + limits.total
    for seconds in limits.pauses():
        try:
            return work()
        except Exception as error:
            if not passing(error) or clock() + seconds > end:
                raise
            log.warning("trying again", reason=str(error), pause=round(seconds, 3))
        pause(seconds)
    raise AssertionError("pauses do not end")
