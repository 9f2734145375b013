"""The retry policy: when a failed operation is attempted again, and when it is given up.

    retry(lambda: apply(batch), RetryPolicy(total=60.0))
    await retry_async(connect, RetryPolicy.fixed(0.5, total=10.0), is_transient_error)

The operation runs from its beginning each time, so it must be one transaction or safe to repeat.
Callers that schedule retries themselves (a reconnect loop, a stored retry) use `delays` or `delay`.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Self, TypeVar

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger

log = get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with jitter, limited by time and by the number of attempts."""

    first: float = 0.1  #: seconds before the second attempt; each later delay is twice as long
    longest: float = 5.0  #: seconds, the upper limit of a delay
    total: float = 60.0  #: no attempt starts later than this many seconds after the first
    jitter: float = 0.5  #: the share of a delay that is random, so that clients spread out
    attempts: int | None = None  #: at most so many, the first one included; None: no limit

    @classmethod
    def fixed(cls, seconds: float, total: float = math.inf) -> Self:
        """The same delay each time."""
        return cls(seconds, seconds, total, jitter=0.0)

    def nominal_delay(self, failures: int) -> float:
        """The delay after so many failed attempts (from 1), without jitter."""
        return min(self.first * 2.0 ** min(failures - 1, 62), self.longest)

    def delay(self, failures: int, random_share: Callable[[], float] = random.random) -> float:
        return self.nominal_delay(failures) * (1.0 - self.jitter + self.jitter * random_share())

    def delays(self, random_share: Callable[[], float] = random.random) -> Iterator[float]:
        """The delays in order, without an end."""
        for failures in itertools.count(1):
            yield self.delay(failures, random_share)


def is_transient(error: BaseException) -> bool:
    """Whether another attempt, later, may succeed."""
    return isinstance(error, PenstockError) and error.transient


class _Attempts:
    """The failed attempts of one operation."""

    def __init__(
        self,
        policy: RetryPolicy | None,
        retry_if: Callable[[Exception], bool],
        clock: Callable[[], float],
    ) -> None:
        self._policy = policy or RetryPolicy()
        self._retry_if = retry_if
        self._clock = clock
        self._end = clock() + self._policy.total
        self._failures = 0

    def delay_after(self, error: Exception) -> float | None:
        """How long to wait before the next attempt; None if there is none."""
        self._failures += 1
        delay = self._policy.delay(self._failures)
        if (
            not self._retry_if(error)
            or self._failures == self._policy.attempts
            or self._clock() + delay > self._end
        ):
            return None
        log.warning("retrying", error=str(error), delay=round(delay, 3))
        return delay


def retry(
    operation: Callable[[], T],
    policy: RetryPolicy | None = None,
    retry_if: Callable[[Exception], bool] = is_transient,
    *,
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """The operation's result, once it succeeds, or its last error.

    `sleep` may raise to give up early.
    """
    attempts = _Attempts(policy, retry_if, clock)
    while True:
        try:
            return operation()
        except Exception as error:
            if (delay := attempts.delay_after(error)) is None:
                raise
        sleep(delay)


async def retry_async(
    operation: Callable[[], Awaitable[T]],
    policy: RetryPolicy | None = None,
    retry_if: Callable[[Exception], bool] = is_transient,
) -> T:
    """As `retry`, on an event loop; cancel the task to give up early."""
    attempts = _Attempts(policy, retry_if, time.monotonic)
    while True:
        try:
            return await operation()
        except Exception as error:
            if (delay := attempts.delay_after(error)) is None:
                raise
        await asyncio.sleep(delay)


async def run_regularly(
    action: Callable[[], Awaitable[object]],
    seconds: float,
    on_transient: Callable[[Exception], object],
) -> None:
    """Until it is cancelled. A transient error does not end it; any other does."""
    while True:
        try:
            await action()
        except Exception as error:
            if not is_transient(error):
                raise
            on_transient(error)
        await asyncio.sleep(seconds)
