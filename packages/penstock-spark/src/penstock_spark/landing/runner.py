"""Runs landers until they are stopped, or until they have what there was at the beginning.

An unavailable broker or store is waited for, each table by itself: with `--once` for a minute,
otherwise without a limit. A table that cannot go on (a refused password, lost messages) is reported
and does not stop the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.core.logs import get_logger
from penstock.core.retry import RetryPolicy
from penstock_spark.landing.lander import TableLander
from penstock_spark.runner import classify_failure

log = get_logger(__name__)

_BACKOFF: Final = RetryPolicy(first=1.0, longest=30.0)
ONCE_RETRY_SECONDS: Final = 60.0
#: How often a stop is noticed while nothing is to do.
_IDLE_SECONDS: Final = 600.0


@dataclass(slots=True)
class _Turn:
    """When a table is next."""

    lander: TableLander
    due: float = 0.0
    until: dict[str, int] | None = None  #: where a run with an end stops
    failures: int = 0
    failing_since: float = 0.0
    error: Exception | None = None
    is_done: bool = False


@dataclass(slots=True)
class LandingRunner:
    landers: Sequence[TableLander]
    every: float = 10.0  #: seconds between the batches of a table without a backlog
    once: bool = False
    on_change: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Raises the first error that ended a table, after the others have ended."""
        turns = [_Turn(lander) for lander in self.landers]
        while waiting := [turn for turn in turns if not turn.is_done]:
            turn = min(waiting, key=lambda turn: turn.due)
            pause = min(max(turn.due - self.clock(), 0.0), _IDLE_SECONDS)
            if self.stop.wait(pause) if pause else self.stop.is_set():
                break
            if turn.due <= self.clock():
                self._take(turn)
                self.on_change()
        for turn in turns:
            if turn.error is not None:
                raise turn.error

    def _take(self, turn: _Turn) -> None:
        began = self.clock()
        try:
            if self.once and turn.until is None:
                turn.until = turn.lander.ends()
            landed = turn.lander.land_batch(turn.until)
        except Exception as error:
            self._fail(turn, error)
            return
        turn.failures = 0
        turn.lander.totals.reason = ""
        if landed and turn.lander.totals.lag:
            turn.due = began  # there is more
        elif self.once:
            turn.is_done = not landed or not turn.lander.totals.lag
        else:
            turn.due = began + self.every

    def _fail(self, turn: _Turn, error: Exception) -> None:
        failure = classify_failure(error, None)
        turn.failures += 1
        now = self.clock()
        if turn.failures == 1:
            turn.failing_since = now
        turn.lander.totals.reason = failure.reason
        turn.lander.source.forget_endpoint()
        overdue = self.once and now - turn.failing_since > ONCE_RETRY_SECONDS
        if not failure.transient or overdue:
            turn.error = failure.error if failure.permanent else error
            turn.is_done = True
            log.error("landing failed", table=turn.lander.name, error=failure.reason)
            return
        delay = _BACKOFF.delay(turn.failures)
        turn.due = now + delay
        log.warning(
            "waiting", table=turn.lander.name, reason=failure.reason, seconds=round(delay, 1)
        )
