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

from penstock.core.basic_properties import BasicProperties
from penstock.core.errors import PenstockError
from penstock_jobs.errors import JobFormatError
from penstock_jobs.formats import read_request, read_response
from penstock_jobs.model import JobRequest, JobResponse, JobState
from penstock_jobs.queue.properties import (
    ResponseProperties,
    read_request_properties,
    read_response_properties,
)

FINAL_RANK: Final = 1_000_000
_DIGEST_BYTES: Final = 16
#: Of what a function returned, in a summary.
_FIGURES: Final = 10


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message to keep."""

    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class JobChange:
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
    request: StoredMessage | None = None
    response: StoredMessage | None = None

    @property
    def order(self) -> tuple[int, int, float]:
        return self.run, self.rank, self.progress


def digest(body: bytes) -> bytes:
    """Tells whether two requests with the same id are the same."""
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()


def from_request(body: bytes, said: BasicProperties, now: datetime) -> JobChange | None:
    """A request that is on its way to a worker; nothing, if it cannot be understood: the worker
    will say so."""
    try:
        request, _ = read_request(body)
        request_properties = read_request_properties(said)
    except (JobFormatError, PenstockError):
        return None
    submitted = now
    if request_properties.submitted is not None:
        submitted = min(
            now, datetime.fromtimestamp(min(request_properties.submitted, 1 << 34), UTC)
        )
    return waiting_change(
        request,
        body,
        said.content_type or "",
        now,
        submitted,
        request_properties.run,
        request_properties.options.priority,
    )


def waiting_change(
    request: JobRequest,
    body: bytes,
    content_type: str,
    now: datetime,
    submitted: datetime,
    run: int = 1,
    priority: int = 0,
) -> JobChange:
    return JobChange(
        request.id,
        request.type,
        JobState.WAITING,
        run,
        0,
        now,
        priority=priority,
        submitted=submitted,
        digest=digest(body),
        request=StoredMessage(content_type, body),
    )


def from_response(body: bytes, said: BasicProperties, now: datetime) -> JobChange | None:
    try:
        response, _ = read_response(body)
    except JobFormatError:
        return None
    told = read_response_properties(said, final=response.final, error=response.error)
    refused = told.state is JobState.REFUSED
    return JobChange(
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
        response=StoredMessage(said.content_type or "", body) if told.state.final else None,
    )


def _rank(told: ResponseProperties) -> int:
    if told.state.final:
        return FINAL_RANK
    if told.state is JobState.WAITING:
        return 0
    return 2 * told.attempt + (told.state is JobState.RETRYING)


def summary(response: JobResponse) -> dict[str, Any]:
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


def merge_changes(changes: Iterable[JobChange]) -> list[JobChange]:
    """One for each job: the latest, with what only the others knew."""
    latest: dict[str, JobChange] = {}
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
