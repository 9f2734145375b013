"""What messages say of jobs, as changes that can be put in order.

Messages may be told in another order than they happened, or twice. A change has a place in the
life of its job (`order`): of two the later holds, whichever came first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import islice
from typing import Any, Final

from penstock.core.errors import PenstockError
from penstock.core.properties import Properties
from penstock.jobs.errors import FormError
from penstock.jobs.forms import read_request, read_response
from penstock.jobs.history.records import JobState
from penstock.jobs.model import Request, Response
from penstock.jobs.queue.envelope import Telling, read_envelope, read_telling

END: Final = 1_000_000
_DIGEST_BYTES: Final = 16
#: Of what a function returned, in a summary.
_FIGURES: Final = 10


@dataclass(frozen=True, slots=True)
class Kept:
    """A message to keep."""

    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Change:
    id: str
    kind: str
    state: JobState
    run: int
    rank: int
    at: datetime
    progress: float = 0.0
    priority: int = 0
    submitted: datetime | None = None
    start: datetime | None = None
    end: datetime | None = None
    error: str | None = None
    attempts: int = 0
    worker: str | None = None
    digest: bytes | None = None
    summary: dict[str, Any] = field(default_factory=dict)
    request: Kept | None = None
    response: Kept | None = None

    @property
    def order(self) -> tuple[int, int, float]:
        return self.run, self.rank, self.progress


def digest(body: bytes) -> bytes:
    """Tells whether two requests with the same id are the same."""
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()


def from_request(body: bytes, said: Properties, now: datetime) -> Change | None:
    """A request that is on its way to a worker; nothing, if it cannot be understood: the worker
    will say so."""
    try:
        request, _ = read_request(body)
        envelope = read_envelope(said)
    except (FormError, PenstockError):
        return None
    submitted = now
    if envelope.submitted is not None:
        submitted = min(now, datetime.fromtimestamp(min(envelope.submitted, 1 << 34), UTC))
    return waiting(request, body, said.content_type or "", now, submitted, envelope.run,
                   envelope.options.priority)  # fmt: skip


def waiting(
    request: Request,
    body: bytes,
    content_type: str,
    now: datetime,
    submitted: datetime,
    run: int = 1,
    priority: int = 0,
) -> Change:
    return Change(
        request.id,
        request.type,
        JobState.WAITING,
        run,
        0,
        now,
        priority=priority,
        submitted=submitted,
        digest=digest(body),
        request=Kept(content_type, body),
    )


def from_response(body: bytes, said: Properties, now: datetime) -> Change | None:
    try:
        response, _ = read_response(body)
    except FormError:
        return None
    told = read_telling(said, final=response.final, error=response.error)
    refused = told.state is JobState.REFUSED
    return Change(
        response.id,
        response.type,
        told.state,
        # A job that is there already is not touched by the refusal of another with its name.
        0 if refused else told.run,
        _rank(told),
        now,
        response.progress if told.state is not JobState.RETRYING else 0.0,
        start=response.start,
        end=response.end,
        error=response.error or told.error or None,
        attempts=0 if refused else told.attempt,
        worker=told.worker or None,
        summary=summary(response),
        response=Kept(said.content_type or "", body) if told.state.final else None,
    )


def _rank(told: Telling) -> int:
    if told.state.final:
        return END
    if told.state is JobState.WAITING:
        return 0
    return 2 * told.attempt + (told.state is JobState.RETRYING)


def summary(response: Response) -> dict[str, Any]:
    """A few figures of a result."""
    found: dict[str, Any] = {}
    if isinstance(response.value, dict):
        figures = (each for each in response.value.items() if isinstance(each[1], int | float))
        found.update(islice(figures, _FIGURES))
    if response.results:
        last = response.results[-1]
        found["samples"] = last.total_samples
        found["predicted"] = last.predicted_samples
        found["error"] = last.test_error
    if response.models:
        found["models_bytes"] = len(response.models)
    return found


def folded(changes: Iterable[Change]) -> list[Change]:
    """One for each job: the latest, with what only the others knew."""
    latest: dict[str, Change] = {}
    for change in changes:
        there = latest.get(change.id)
        if there is not None:
            # What is told twice holds as it was told first.
            first, last = (there, change) if change.order > there.order else (change, there)
            change = replace(
                last,
                submitted=first.submitted or last.submitted,
                start=last.start or (first.start if first.run == last.run else None),
                priority=last.priority or first.priority,
                digest=last.digest or first.digest,
                request=last.request or first.request,
                worker=last.worker or first.worker,
            )
        latest[change.id] = change
    return list(latest.values())
