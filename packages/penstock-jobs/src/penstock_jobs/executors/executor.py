"""What a kind of work is: it begins an attempt, tells how far it is, and says how it ended.

A new kind is one class. One whose work is a coroutine keeps `AsyncExecutor` and is wrapped in
`TaskExecutor`; one that has processes or callbacks of its own keeps `JobExecutor`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
from penstock_jobs.shells.shell import TimeLimits


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What came of it, as the response carries it."""

    results: tuple[VoteResult, ...] = ()
    models: bytes = b""
    value: Any = None
    seconds: float | None = None  #: that the work itself took, where that is known


class AttemptListener(Protocol):
    """Whom an attempt tells; after `done` or `failed` nothing more."""

    def told(
        self, share: float, finish: datetime | None = None, results: tuple[VoteResult, ...] = ()
    ) -> None: ...

    def done(self, outcome: JobOutcome) -> None: ...

    def failed(self, error: Exception) -> None: ...


class Attempt(Protocol):
    """Work that goes on."""

    def end(self, reason: str) -> None:
        """At once, with all that it has started; `failed` is told then."""

    @property
    def underway(self) -> bool:
        """Whether it has begun, and does not wait behind others."""

    def withdraw(self) -> bool:
        """Do not begin, if it has not; whether that was so. Nothing is told then."""


class JobExecutor(Protocol):
    @property
    def types(self) -> tuple[str, ...]: ...

    @property
    def ahead(self) -> bool:
        """Whether it can be given more than there is room for, to go on with at once."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def begin(
        self, request: JobRequest, limits: TimeLimits, report: AttemptListener
    ) -> Attempt: ...


ProgressCallback = Callable[..., None]


class AsyncExecutor(Protocol):
    """A kind whose work is a coroutine, which ends what it does when it is cancelled."""

    @property
    def types(self) -> tuple[str, ...]: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def carry_out(
        self, request: Any, limits: TimeLimits, report: AttemptListener
    ) -> JobOutcome: ...


@dataclass(frozen=True, slots=True)
class TaskExecutor:
    """Keeps `JobExecutor`: each attempt of the work is a task."""

    work: AsyncExecutor
    ahead: bool = False
    _running: set[TaskAttempt] = field(default_factory=set)

    @property
    def types(self) -> tuple[str, ...]:
        return self.work.types

    async def open(self) -> None:
        await self.work.open()

    async def close(self) -> None:
        for attempt in list(self._running):
            attempt.task.cancel()
        await asyncio.gather(*(each.task for each in self._running), return_exceptions=True)
        await self.work.close()

    def begin(self, request: JobRequest, limits: TimeLimits, report: AttemptListener) -> Attempt:
        attempt = TaskAttempt(self.work, request, limits, report)
        self._running.add(attempt)
        attempt.task.add_done_callback(lambda _: self._running.discard(attempt))
        return attempt


class TaskAttempt:
    __slots__ = ("_reason", "task")

    def __init__(
        self, work: AsyncExecutor, request: JobRequest, limits: TimeLimits, report: AttemptListener
    ) -> None:
        self._reason = ""
        self.task = asyncio.create_task(self._run(work, request, limits, report))

    def end(self, reason: str) -> None:
        self._reason = reason
        self.task.cancel()

    @property
    def underway(self) -> bool:
        return True

    def withdraw(self) -> bool:
        return False

    async def _run(
        self, work: AsyncExecutor, request: JobRequest, limits: TimeLimits, report: AttemptListener
    ) -> None:
        try:
            outcome = await work.carry_out(request, limits, report)
        except asyncio.CancelledError:
            report.failed(JobFailed(self._reason or "it was ended"))
        except Exception as error:
            report.failed(error)
        else:
            report.done(outcome)


def is_permanent(error: Exception) -> bool:
    """Whether it would be the same the next time."""
    if isinstance(error, JobFailed):
        return not error.again
    return isinstance(error, DatasetError | JobFormatError | WorkNotPermitted)


def error_text(error: Exception) -> str:
    """For whoever asked."""
    told = (JobFailed, DatasetError, JobFormatError, WorkNotPermitted, JobTimeout)
    if isinstance(error, told):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


# Work that only takes time.

#: However short the interval that is asked for.
_SHORTEST_SECONDS: Final = 0.01


class FakeExecutor:
    types = ("fake",)

    async def open(self) -> None:
        """There is nothing to open."""

    async def close(self) -> None:
        """Nor to close."""

    async def carry_out(
        self, request: Fake, limits: TimeLimits, report: AttemptListener
    ) -> JobOutcome:
        if not request.duration:
            return JobOutcome(seconds=0.0)
        limit = min((each for each in (limits.soft, limits.hard) if each is not None), default=None)
        try:
            async with asyncio.timeout(limit):
                await _pass(request, report)
        except TimeoutError:
            raise JobTimeout(f"ended after {limit:g} seconds") from None
        return JobOutcome()


async def _pass(request: Fake, report: AttemptListener) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    finish = datetime.now(UTC) + timedelta(seconds=request.duration)
    interval = max(request.interval, _SHORTEST_SECONDS)
    steps = 0
    while (gone := steps * interval) < request.duration:
        report.told(gone / request.duration, finish)
        steps += 1
        due = begun + min(steps * interval, request.duration)
        await asyncio.sleep(max(due - loop.time(), 0.0))
