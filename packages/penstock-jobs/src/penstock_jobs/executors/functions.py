"""Python functions, run in a pool of processes; Spark functions in a process with a session."""

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
    """Implements `JobExecutor` for allowed functions.

    `allowed` names modules, including their submodules, or functions (`module:name`). A function
    that a module has imported must be named itself.
    """

    can_prefetch = True

    def __init__(self, pool: ProcessPool, allowed: Sequence[str], *, spark: bool = False) -> None:
        self.types = ("spark",) if spark else ("call",)
        self._pool = pool
        self._warm = not spark
        self._allowed = tuple(allowed)

    async def open(self) -> None:
        """Spark starts with the first call, because it takes long."""
        if self._warm:
            await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    def start(self, request: JobRequest, limits: TimeLimits, listener: AttemptListener) -> Attempt:
        assert isinstance(request, FunctionCall | SparkCall)
        if not is_permitted(request.function, self._allowed):
            raise WorkNotPermitted(f"the function {request.function} is not allowed on this worker")
        return run_in_pool(
            self._pool,
            request.function,
            request.arguments,
            dict(request.keywords),
            limits,
            listener,
            _outcome,
            own_only=request.function not in self._allowed,
        )


def _timestamp(seconds: float | None) -> datetime | None:
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
    listener: AttemptListener,
    outcome: Callable[[Any, float], JobOutcome],
    *,
    as_json: bool = True,
    own_only: bool = True,
) -> Attempt:
    """Start a function in a pool, within its limits; `as_json` and `own_only` as in `PoolTask`."""
    attempt = PoolAttempt(pool, listener, outcome)
    attempt.pool_task = PoolTask(
        function,
        arguments,
        keywords,
        as_json,
        attempt.progress,
        attempt.done,
        attempt.failed,
        attempt.lost,
        own_only,
        listener.output,
    )
    attempt.set_timers(limits)
    pool.submit(attempt.pool_task)
    return attempt


class PoolAttempt:
    __slots__ = ("_limit", "_listener", "_outcome", "_pool", "_timers", "pool_task")

    def __init__(
        self,
        pool: ProcessPool,
        listener: AttemptListener,
        outcome: Callable[[Any, float], JobOutcome],
    ) -> None:
        self._pool = pool
        self._listener = listener
        self._outcome = outcome
        self._timers: list[asyncio.TimerHandle] = []
        self._limit = 0.0
        self.pool_task: PoolTask

    def set_timers(self, limits: TimeLimits) -> None:
        loop = asyncio.get_running_loop()
        if limits.soft is not None:
            self._timers.append(loop.call_later(limits.soft, self._interrupt, limits.soft))
            if limits.hard is None:
                late = limits.soft + limits.grace
                self._timers.append(loop.call_later(late, self._end_after, late))
        if limits.hard is not None:
            self._timers.append(loop.call_later(limits.hard, self._end_after, limits.hard))

    def terminate(self, reason: str) -> None:
        self._pool.terminate(self.pool_task, reason)

    @property
    def is_started(self) -> bool:
        return self._pool.is_started(self.pool_task)

    def withdraw(self) -> bool:
        withdrawn = self._pool.withdraw(self.pool_task)
        if withdrawn:
            self._cancel_timers()
        return withdrawn

    def progress(self, share: float, finish: float | None) -> None:
        if math.isfinite(share):
            self._listener.progress(min(max(share, 0.0), 1.0), _timestamp(finish))

    def done(self, value: Any, seconds: float) -> None:
        self._cancel_timers()
        self._listener.done(self._outcome(value, seconds))

    def failed(self, kind: str, text: str, again: bool) -> None:
        self._cancel_timers()
        if self._limit and kind == JobTimeout.__name__:
            self._listener.failed(JobTimeout(f"ended after {self._limit:g} seconds"))
            return
        named = f"{kind}: {text}" if text else kind
        self._listener.failed(JobFailed(named if again else text, again=again))

    def lost(self, reason: str) -> None:
        self._cancel_timers()
        if self._limit:
            self._listener.failed(JobTimeout(reason))
        else:
            self._listener.failed(JobFailed(reason))

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def _interrupt(self, seconds: float) -> None:
        self._limit = seconds
        self._pool.interrupt(self.pool_task)

    def _end_after(self, seconds: float) -> None:
        self._limit = seconds
        self._pool.terminate(self.pool_task, f"ended after {seconds:g} seconds")
