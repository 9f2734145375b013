"""Requests and responses as changes of job records.

Messages may arrive out of order, or twice. Each change has a position in the life of its job
(`order`): of two changes the later one holds, whichever arrives first.
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
from penstock_jobs.model import JobOptions, JobRequest, JobResponse, JobState
from penstock_jobs.queue.properties import (
    ResponseProperties,
    read_request_properties,
    read_response_properties,
)

FINAL_RANK: Final = 1_000_000
_DIGEST_BYTES: Final = 16
#: Of a returned dictionary, in a summary.
_MAX_FIGURES: Final = 10
_MAX_FIGURE: Final = 1e300  # neither infinite nor too long to be written


@dataclass(frozen=True, slots=True)
class StoredMessage:
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
    output: str = ""  #: what the job has printed since the last response
    output_start: int = 0  #: characters of output before it, in this attempt
    owner: str | None = None
    unique: str | None = None
    keep: float | None = None
    max_attempts: int | None = None
    soft: float | None = None
    hard: float | None = None

    @property
    def order(self) -> tuple[int, int, float]:
        return self.run, self.rank, self.progress


def digest(body: bytes) -> bytes:
    """Distinguishes requests of the same id."""
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()


def from_request(body: bytes, properties: BasicProperties, now: datetime) -> JobChange | None:
    """None if the request cannot be read: a worker will refuse it."""
    try:
        request, _ = read_request(body)
        given = read_request_properties(properties)
    except PenstockError:
        return None
    submitted = now
    if given.submitted is not None:
        submitted = min(now, datetime.fromtimestamp(min(given.submitted, 1 << 34), UTC))
    content_type = properties.content_type or ""
    return waiting_change(request, body, content_type, now, submitted, given.run, given.options)


def waiting_change(
    request: JobRequest,
    body: bytes,
    content_type: str,
    now: datetime,
    submitted: datetime,
    run: int = 1,
    options: JobOptions = JobOptions(),  # noqa: B008 - frozen
    owner: str | None = None,
) -> JobChange:
    return JobChange(
        request.id,
        request.type,
        JobState.WAITING,
        run,
        0,
        now,
        submitted=submitted,
        digest=digest(body),
        request=StoredMessage(content_type, body),
        owner=owner,
        **option_fields(options),
    )


def option_fields(options: JobOptions) -> dict[str, Any]:
    """The fields of a change that are options of the request."""
    return {
        "priority": options.priority,
        "unique": options.unique,
        "keep": options.keep,
        "max_attempts": options.attempts,
        "soft": options.soft,
        "hard": options.hard,
    }


def from_response(body: bytes, properties: BasicProperties, now: datetime) -> JobChange | None:
    try:
        response, _ = read_response(body)
    except JobFormatError:
        return None
    given = read_response_properties(properties, final=response.final, error=response.error)
    refused = given.state is JobState.REFUSED
    return JobChange(
        response.id,
        response.type,
        given.state,
        # The refusal of a request does not change another job with the same id.
        0 if refused else given.run,
        _rank(given),
        now,
        response.progress if given.state is not JobState.RETRYING else 0.0,
        start=response.start,
        end=response.end,
        error=response.error or given.error or None,
        attempts=0 if refused else given.attempt,
        worker=given.worker or None,
        summary=summary(response),
        response=StoredMessage(properties.content_type or "", body) if given.state.final else None,
        output=response.output or "",
        output_start=response.output_start or 0,
    )


def _rank(given: ResponseProperties) -> int:
    if given.state.final:
        return FINAL_RANK
    if given.state is JobState.WAITING:
        return 0
    return 2 * given.attempt + (given.state is JobState.RETRYING)


def summary(response: JobResponse) -> dict[str, Any]:
    """A few figures of the result."""
    figures: dict[str, Any] = {}
    if isinstance(response.value, dict):
        figures.update(islice(filter(_is_figure, response.value.items()), _MAX_FIGURES))
    if response.results:
        last = response.results[-1]
        figures["samples"] = last.total_samples
        figures["predicted"] = last.predicted_samples
        figures["error"] = last.test_error
    if response.models:
        figures["models_bytes"] = len(response.models)
    return figures


def _is_figure(item: tuple[str, Any]) -> bool:
    name, value = item
    return "\0" not in name and isinstance(value, int | float) and abs(value) < _MAX_FIGURE


def merge_changes(changes: Iterable[JobChange]) -> list[JobChange]:
    """One change per job: the latest, with the fields that only earlier ones have."""
    latest: dict[str, JobChange] = {}
    for change in changes:
        known = latest.get(change.id)
        if known is not None:
            # Of two equal changes the first one holds.
            first, last = (known, change) if change.order > known.order else (change, known)
            change = replace(
                last,
                submitted=first.submitted or last.submitted,
                start=last.start or (first.start if first.run == last.run else None),
                priority=last.priority or first.priority,
                digest=last.digest or first.digest,
                request=last.request or first.request,
                worker=last.worker or first.worker,
                owner=last.owner or first.owner,
                unique=last.unique or first.unique,
                keep=last.keep or first.keep,
                max_attempts=last.max_attempts or first.max_attempts,
                soft=last.soft or first.soft,
                hard=last.hard or first.hard,
            )
        latest[change.id] = change
    return list(latest.values())
