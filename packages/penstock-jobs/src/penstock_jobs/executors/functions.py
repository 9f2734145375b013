"""Python functions, run in a pool of processes; Spark functions in a process with a session."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from penstock_jobs.errors import JobFailed, WorkNotPermitted
from penstock_jobs.executors.executor import Attempt, AttemptListener, JobOutcome
from penstock_jobs.model import FunctionCall, JobRequest, SparkCall, VoteResult
from penstock_jobs.pool.pool import PoolTask, ProcessPool


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

    def start(self, request: JobRequest, listener: AttemptListener) -> Attempt:
        assert isinstance(request, FunctionCall | SparkCall)
        if not is_permitted(request.function, self._allowed):
            raise WorkNotPermitted(f"the function {request.function} is not allowed on this worker")
        return run_in_pool(
            self._pool,
            request.function,
            request.arguments,
            dict(request.keywords),
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
    listener: AttemptListener,
    outcome: Callable[[Any, float], JobOutcome],
    *,
    as_json: bool = True,
    own_only: bool = True,
    partial_results: Callable[[Any], tuple[VoteResult, ...]] = lambda _: (),
) -> Attempt:
    """Start a function in a pool; `as_json` and `own_only` as in `PoolTask`.
    `partial_results` is called with the details of its progress."""
    attempt = PoolAttempt(pool, listener, outcome, partial_results)
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
    pool.submit(attempt.pool_task)
    return attempt


class PoolAttempt:
    __slots__ = ("_listener", "_outcome", "_partial_results", "_pool", "pool_task")

    def __init__(
        self,
        pool: ProcessPool,
        listener: AttemptListener,
        outcome: Callable[[Any, float], JobOutcome],
        partial_results: Callable[[Any], tuple[VoteResult, ...]],
    ) -> None:
        self._partial_results = partial_results
        self._pool = pool
        self._listener = listener
        self._outcome = outcome
        self.pool_task: PoolTask

    def interrupt(self) -> None:
        self._pool.interrupt(self.pool_task)

    def terminate(self, reason: str) -> None:
        self._pool.terminate(self.pool_task, reason)

    @property
    def is_started(self) -> bool:
        return self._pool.is_started(self.pool_task)

    def withdraw(self) -> bool:
        return self._pool.withdraw(self.pool_task)

    def progress(self, share: float, finish: float | None, detail: Any) -> None:
        if math.isfinite(share):
            results = self._partial_results(detail)
            self._listener.progress(min(max(share, 0.0), 1.0), _timestamp(finish), results)

    def done(self, value: Any, seconds: float) -> None:
        self._listener.done(self._outcome(value, seconds))

    def failed(self, kind: str, text: str, again: bool) -> None:
        named = f"{kind}: {text}" if text else kind
        self._listener.failed(JobFailed(named if again else text, again=again))

    def lost(self, reason: str) -> None:
        self._listener.failed(JobFailed(reason))
