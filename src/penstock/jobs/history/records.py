"""A job as those see it who ask about it: where it stands, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final


class JobState(StrEnum):
    WAITING = "waiting"  #: in its queue; nobody has begun
    RUNNING = "running"  #: a worker is at it
    RETRYING = "retrying"  #: it failed, and will be tried again
    DONE = "done"  #: there is a result
    FAILED = "failed"  #: it will not be tried again by itself; it lies with the dead letters
    CANCELLED = "cancelled"  #: somebody did not want it any more
    REFUSED = "refused"  #: it was never begun: what was asked cannot be understood

    @property
    def final(self) -> bool:
        return self in FINAL


FINAL: Final = frozenset((JobState.DONE, JobState.FAILED, JobState.CANCELLED, JobState.REFUSED))


@dataclass(frozen=True, slots=True)
class JobRecord:
    id: str
    kind: str  #: the request's type: fake, build_models, predict_models, call, command, spark
    state: JobState
    submitted: datetime
    changed: datetime  #: the last time anything was heard of it
    progress: float = 0.0
    start: datetime | None = None
    end: datetime | None = None  #: expected while it runs; when it was, afterwards
    error: str | None = None  #: of the last attempt, if that failed
    attempts: int = 0  #: how often it was begun
    worker: str | None = None
    priority: int = 0
    #: What came of it in a few figures; the whole is `Jobs.result`.
    summary: Mapping[str, Any] = field(default_factory=dict)
    #: Rises with each change of any job: what a watcher has seen, it need not see again.
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a job."""

    at: datetime
    state: JobState
    progress: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class JobPage:
    records: tuple[JobRecord, ...]
    total: int  #: of all that match, on all pages
    page: int  #: the first is 1
    size: int
