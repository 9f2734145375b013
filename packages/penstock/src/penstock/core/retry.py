"""The retry policy: exponential backoff with jitter, and which errors deserve another attempt.

    retry(lambda: apply(batch), RetryPolicy(total=60.0))

The work runs from its beginning each time, so it must be one transaction or safe to repeat. Only
transient errors are retried; the last one is raised when the time is over.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger

log = get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delays that double from `first` to `longest` seconds, until `total` seconds have passed."""

    first: float = 0.1
    longest: float = 5.0
    total: float = 60.0

    def delays(self, random_share: Callable[[], float] = random.random) -> Iterator[float]:
        """Each between half and the whole of the current delay, so that clients spread out."""
        due = self.first
        while True:
            yield due * (0.5 + random_share() / 2)
            due = min(due * 2, self.longest)


def is_transient(error: BaseException) -> bool:
    """Whether another attempt, later, may succeed."""
    return isinstance(error, PenstockError) and error.transient


def retry(
    work: Callable[[], T],
    policy: RetryPolicy | None = None,
    *,
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """The result of the work, once it succeeds. `sleep` may raise to give up early."""
    limits = policy or RetryPolicy()
    end = clock() + limits.total
    for seconds in limits.delays():
        try:
            return work()
        except Exception as error:
            if not is_transient(error) or clock() + seconds > end:
                raise
            log.warning("retrying", error=str(error), delay=round(seconds, 3))
        sleep(seconds)
    raise AssertionError("delays() does not end")
