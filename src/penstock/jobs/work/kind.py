"""What a kind of work is: it begins an attempt, tells how far it is, and says how it ended.

A new kind is one class. One whose work is a coroutine keeps `Work` and is wrapped in `Tasks`; one
that has processes or callbacks of its own keeps `Kind`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from penstock.jobs.errors import DataError, FormError, NotPermitted, OutOfTime, WorkFailed
from penstock.jobs.model import Request, Result
from penstock.jobs.shells.shell import Limits


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it, as the response carries it."""

    results: tuple[Result, ...] = ()
    models: bytes = b""
    value: Any = None
    seconds: float | None = None  #: that the work itself took, where that is known


class Report(Protocol):
    """Whom an attempt tells; after `done` or `failed` nothing more."""

    def told(
        self, share: float, finish: datetime | None = None, results: tuple[Result, ...] = ()
    ) -> None: ...

    def done(self, outcome: Outcome) -> None: ...

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


class Kind(Protocol):
    @property
    def types(self) -> tuple[str, ...]: ...

    @property
    def ahead(self) -> bool:
        """Whether it can be given more than there is room for, to go on with at once."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def begin(self, request: Request, limits: Limits, report: Report) -> Attempt: ...


Told = Callable[..., None]


class Work(Protocol):
    """A kind whose work is a coroutine, which ends what it does when it is cancelled."""

    @property
    def types(self) -> tuple[str, ...]: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def carry_out(self, request: Any, limits: Limits, report: Report) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class Tasks:
    """Keeps `Kind`: each attempt of the work is a task."""

    work: Work
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

    def begin(self, request: Request, limits: Limits, report: Report) -> Attempt:
        attempt = TaskAttempt(self.work, request, limits, report)
        self._running.add(attempt)
        attempt.task.add_done_callback(lambda _: self._running.discard(attempt))
        return attempt


class TaskAttempt:
    __slots__ = ("_reason", "task")

    def __init__(self, work: Work, request: Request, limits: Limits, report: Report) -> None:
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

    async def _run(self, work: Work, request: Request, limits: Limits, report: Report) -> None:
        try:
            outcome = await work.carry_out(request, limits, report)
        except asyncio.CancelledError:
            report.failed(WorkFailed(self._reason or "it was ended"))
        except Exception as error:
            report.failed(error)
        else:
            report.done(outcome)


def lasting(error: Exception) -> bool:
    """Whether it would be the same the next time."""
    if isinstance(error, WorkFailed):
        return not error.again
    return isinstance(error, DataError | FormError | NotPermitted)


def sentence(error: Exception) -> str:
    """For whoever asked."""
    told = (WorkFailed, DataError, FormError, NotPermitted, OutOfTime)
    if isinstance(error, told):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
