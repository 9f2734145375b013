"""Python functions, in processes of their own; those that need Spark in one that has a session."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from penstock_jobs.errors import JobFailed, JobTimeout, WorkNotPermitted
from penstock_jobs.executors.executor import Attempt, AttemptListener, JobOutcome
from penstock_jobs.model import FunctionCall, JobRequest, SparkCall
from penstock_jobs.pool.pool import PoolTask, ProcessPool
from penstock_jobs.shells.shell import TimeLimits


class FunctionExecutor:
    """Keeps `Kind`, for functions that may be called: `allowed` names modules, with all below
    them, or functions (`module:name`). What a module has from others is not its own, and has to be
    named itself."""

    ahead = True

    def __init__(self, pool: ProcessPool, allowed: Sequence[str], *, spark: bool = False) -> None:
        self.types = ("spark",) if spark else ("call",)
        self._pool = pool
        self._warm = not spark
        self._allowed = tuple(allowed)

    async def open(self) -> None:
        """Spark takes long to start: that is done when it is needed."""
        if self._warm:
            await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    def begin(self, request: JobRequest, limits: TimeLimits, report: AttemptListener) -> Attempt:
        assert isinstance(request, FunctionCall | SparkCall)
        if not is_permitted(request.function, self._allowed):
            raise WorkNotPermitted(f"{request.function} is not among what may be called here")
        return run_in_pool(
            self._pool,
            request.function,
            request.arguments,
            dict(request.keywords),
            limits,
            report,
            _outcome,
            own=request.function not in self._allowed,
        )


def _moment(seconds: float | None) -> datetime | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _outcome(text: str, seconds: float) -> JobOutcome:
    return JobOutcome(value=None if text == "null" else json.loads(text), seconds=seconds)


def is_permitted(function: str, allowed: Sequence[str]) -> bool:
    module = function.partition(":")[0]
    return any(
        function == each or module == each or module.startswith(f"{each}.") for each in allowed
    )


def run_in_pool(
    pool: ProcessPool,
    function: str,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    limits: TimeLimits,
    report: AttemptListener,
    outcome: Callable[[Any, float], JobOutcome],
    *,
    plain: bool = True,
    own: bool = True,
) -> Attempt:
    """Begin a function in a pool, within its limits; `plain` and `own` are `PoolTask`'s."""
    attempt = PoolAttempt(pool, report, outcome)
    attempt.pool_task = PoolTask(
        function,
        arguments,
        keywords,
        plain,
        attempt.told,
        attempt.done,
        attempt.failed,
        attempt.lost,
        own,
    )
    attempt.within(limits)
    pool.begin(attempt.pool_task)
    return attempt


class PoolAttempt:
    __slots__ = ("_limit", "_outcome", "_pool", "_report", "_timers", "pool_task")

    def __init__(
        self,
        pool: ProcessPool,
        report: AttemptListener,
        outcome: Callable[[Any, float], JobOutcome],
    ) -> None:
        self._pool = pool
        self._report = report
        self._outcome = outcome
        self._timers: list[asyncio.TimerHandle] = []
        self._limit = 0.0
        self.pool_task: PoolTask

    def within(self, limits: TimeLimits) -> None:
        loop = asyncio.get_running_loop()
        if limits.soft is not None:
            self._timers.append(loop.call_later(limits.soft, self._ask, limits.soft))
            if limits.hard is None:
                late = limits.soft + limits.grace
                self._timers.append(loop.call_later(late, self._end_late, late))
        if limits.hard is not None:
            self._timers.append(loop.call_later(limits.hard, self._end_late, limits.hard))

    def end(self, reason: str) -> None:
        self._pool.end(self.pool_task, reason)

    @property
    def underway(self) -> bool:
        return self._pool.underway(self.pool_task)

    def withdraw(self) -> bool:
        withdrawn = self._pool.withdraw(self.pool_task)
        if withdrawn:
            self._settle()
        return withdrawn

    # What the pool says.

    def told(self, share: float, finish: float | None) -> None:
        """As the function says it: what is no share, or no time, is nothing."""
        if math.isfinite(share):
            self._report.told(min(max(share, 0.0), 1.0), _moment(finish))

    def done(self, value: Any, seconds: float) -> None:
        self._settle()
        self._report.done(self._outcome(value, seconds))

    def failed(self, kind: str, text: str, again: bool) -> None:
        self._settle()
        if self._limit and kind == JobTimeout.__name__:
            self._report.failed(JobTimeout(f"ended after {self._limit:g} seconds"))
            return
        words = text if not again else f"{kind}: {text}" if text else kind
        self._report.failed(JobFailed(words, again=again))

    def lost(self, reason: str) -> None:
        self._settle()
        if self._limit:
            self._report.failed(JobTimeout(reason))
        else:
            self._report.failed(JobFailed(reason))

    # Limits.

    def _settle(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def _ask(self, seconds: float) -> None:
        self._limit = seconds
        self._pool.ask(self.pool_task)

    def _end_late(self, seconds: float) -> None:
        self._limit = seconds
        self._pool.end(self.pool_task, f"ended after {seconds:g} seconds")
