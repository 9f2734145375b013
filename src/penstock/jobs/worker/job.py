"""A request in the hands of a worker, from when it was taken to when its answer is safe."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from penstock.jobs.forms import Form
from penstock.jobs.history.changes import digest
from penstock.jobs.model import Request, Result
from penstock.jobs.queue.carrier import Delivery, Outgoing
from penstock.jobs.queue.envelope import Envelope
from penstock.jobs.work.kind import Attempt


class Stage(Enum):
    WAITING = 0  #: for room here
    RUNNING = 1
    ANSWERED = 2  #: the answer is on its way, with the acknowledgement
    UNSURE = 3  #: the connection went before the broker's word: the request may come again


@dataclass(slots=True, eq=False)
class Job:
    request: Request
    form: Form
    envelope: Envelope
    delivery: Delivery
    stage: Stage = Stage.WAITING
    attempt: Attempt | None = None
    begun: float = 0.0  #: by the loop's clock
    seen: float | None = None  #: since when it is known to be underway
    start: datetime | None = None
    announced: bool = False
    share: float = 0.0
    finish: datetime | None = None
    results: tuple[Result, ...] = ()
    cancelled: bool = False
    #: What answers it, kept until that is known to be safe.
    messages: list[Outgoing] = field(default_factory=list)
    #: Whether that was the last word about it.
    final: bool = False
    _digest: bytes = field(default=b"", init=False)

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def digest(self) -> bytes:
        """Tells it from others of the same id; made when it is first asked for, which as a rule is
        after the work."""
        self._digest = self._digest or digest(self.delivery.body)
        return self._digest


@dataclass(frozen=True, slots=True)
class Past:
    """What is remembered of one that was answered."""

    run: int
    digest: bytes
