"""The interface of executors: start an attempt, report its progress and its end.

A new type of job is one class. If its work is a coroutine it implements `AsyncExecutor` and is
wrapped in `TaskExecutor`; if it has processes or callbacks of its own it implements `JobExecutor`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from penstock_jobs.errors import (
    DatasetError,
    JobFailed,
    JobFormatError,
    JobTimeout,
    WorkNotPermitted,
)
from penstock_jobs.model import Fake, JobRequest, VoteResult
from penstock_jobs.shells.shell import GRACE_SECONDS

#: The shortest interval between two progress reports of a fake job.
_SHORTEST_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The result of an attempt, as the response carries it."""

    results: tuple[VoteResult, ...] = ()
    models: bytes = b""
    value: Any = None
    seconds: float | None = None  #: of the work itself, where known


class AttemptListener(Protocol):
    """Nothing is reported after `done` or `failed`."""

    def progress(
        self, share: float, finish: datetime | None = None, results: tuple[VoteResult, ...] = ()
    ) -> None: ...

    def output(self, text: str) -> None:
        """Something that the job has printed."""

    def done(self, outcome: JobOutcome) -> None: ...

    def failed(self, error: Exception) -> None: ...


class Attempt(Protocol):
    def interrupt(self) -> None:
        """Ask it to end, however long that takes."""

    def terminate(self, reason: str) -> None:
        """End it with all processes it has started; `failed` is reported then. A command that was
        not asked before is asked, and killed after a grace or at the next call."""

    @property
    def is_started(self) -> bool:
        """Whether it runs and does not wait behind others."""

    def withdraw(self) -> bool:
        """Remove it if it has not started, without a report; whether that was so."""


class JobExecutor(Protocol):
    @property
    def types(self) -> tuple[str, ...]: ...

    @property
    def can_prefetch(self) -> bool:
        """Whether it accepts more attempts than there are slots."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def start(self, request: JobRequest, listener: AttemptListener) -> Attempt: ...


class AsyncExecutor(Protocol):
    """An executor whose work is a coroutine, which stops the work when it is cancelled."""

    @property
    def types(self) -> tuple[str, ...]: ...

    async def close(self) -> None: ...

    async def run(self, request: Any, listener: AttemptListener) -> JobOutcome: ...


@dataclass(frozen=True, slots=True)
class TaskExecutor:
    """Implements `JobExecutor`: each attempt is a task."""

    executor: AsyncExecutor
    can_prefetch: bool = False
    _running: set[TaskAttempt] = field(default_factory=set)

    @property
    def types(self) -> tuple[str, ...]:
        return self.executor.types

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        for attempt in list(self._running):
            attempt.terminate("the worker stops")
        await asyncio.gather(*(each.task for each in self._running), return_exceptions=True)
        await self.executor.close()

    def start(self, request: JobRequest, listener: AttemptListener) -> Attempt:
        attempt = TaskAttempt(self.executor, request, listener)
        self._running.add(attempt)
        attempt.task.add_done_callback(lambda _: self._running.discard(attempt))
        return attempt


class TaskAttempt:
    __slots__ = ("_reason", "task")

    def __init__(
        self, executor: AsyncExecutor, request: JobRequest, listener: AttemptListener
    ) -> None:
        self._reason = ""
        self.task = asyncio.create_task(self._run(executor, request, listener))

    def interrupt(self) -> None:
        self.task.cancel()

    def terminate(self, reason: str) -> None:
        self._reason = reason
        self.task.cancel()
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self.task.cancel)

    @property
    def is_started(self) -> bool:
        return True

    def withdraw(self) -> bool:
        return False

    async def _run(
        self, executor: AsyncExecutor, request: JobRequest, listener: AttemptListener
    ) -> None:
        try:
            outcome = await executor.run(request, listener)
        except asyncio.CancelledError:
            listener.failed(JobFailed(self._reason or "it was ended"))
        except Exception as error:
            listener.failed(error)
        else:
            listener.done(outcome)


def is_permanent(error: Exception) -> bool:
    """Whether a retry would fail in the same way."""
    if isinstance(error, JobFailed):
        return not error.again
    return isinstance(error, DatasetError | JobFormatError | WorkNotPermitted)


def error_text(error: Exception) -> str:
    own = (JobFailed, DatasetError, JobFormatError, WorkNotPermitted, JobTimeout)
    if isinstance(error, own):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class FakeExecutor:
    """Runs jobs that only take time."""

    types = ("fake",)

    async def close(self) -> None:
        """Nothing to close."""

    async def run(self, request: Fake, listener: AttemptListener) -> JobOutcome:
        if not request.duration:
            return JobOutcome(seconds=0.0)
        await _wait(request, listener)
        return JobOutcome()


async def _wait(request: Fake, listener: AttemptListener) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    finish = datetime.now(UTC) + timedelta(seconds=request.duration)
    interval = max(request.interval, _SHORTEST_SECONDS)
    steps = 0
    while (elapsed := steps * interval) < request.duration:
        listener.progress(elapsed / request.duration, finish)
        steps += 1
        due = start + min(steps * interval, request.duration)
        await asyncio.sleep(max(due - loop.time(), 0.0))
