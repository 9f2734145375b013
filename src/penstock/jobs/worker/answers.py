"""The responses of a worker, as messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from penstock.jobs.errors import FormError
from penstock.jobs.forms import Form, write_response
from penstock.jobs.history.changes import digest
from penstock.jobs.history.records import JobState
from penstock.jobs.model import Response
from penstock.jobs.queue.carrier import Delivery, Outgoing
from penstock.jobs.queue.envelope import (
    Envelope,
    Telling,
    buried,
    final_id,
    form_of,
    key,
    response_properties,
)
from penstock.jobs.queue.topology import dead_name, response_name
from penstock.jobs.work.kind import Outcome
from penstock.jobs.worker.job import Job


class Answers:
    """`worker` is who says it; `exchange` replaces the usual one of the responses."""

    def __init__(self, worker: str, exchange: str | None = None) -> None:
        self._worker = worker
        self._exchange = exchange

    def progress(self, job: Job, state: JobState = JobState.RUNNING, error: str = "") -> Outgoing:
        response = Response(
            job.id,
            job.request.type,
            # 1 is the last there will be: what has not ended is never quite there.
            min(job.share, 0.999) if state is JobState.RUNNING else 0.0,
            job.start,
            job.finish,
            results=job.results,
        )
        return self._message(response, job, state, error)

    def done(self, job: Job, outcome: Outcome) -> Outgoing:
        response = Response(
            job.id,
            job.request.type,
            1.0,
            job.start,
            datetime.now(UTC),
            results=outcome.results,
            models=outcome.models,
            value=outcome.value,
        )
        return self._message(response, job, JobState.DONE)

    def failed(self, job: Job, state: JobState, error: str) -> Outgoing:
        now = datetime.now(UTC)
        response = Response(job.id, job.request.type, 1.0, job.start or now, now, error)
        return self._message(response, job, state)

    def dead(self, job: Job, error: str) -> Outgoing:
        """The request, for a person to look at."""
        said = buried(job.delivery.said, error)
        return Outgoing("", dead_name(job.request.type), job.delivery.body, said)

    def refused(self, delivery: Delivery, error: str, identity: str = "") -> Outgoing:
        """To one whose request cannot be understood, as far as it can be told who that is."""
        said = delivery.said
        now = datetime.now(UTC)
        who = identity or said.reply_to or said.correlation_id or said.message_id or "unknown"
        response = Response(who, delivery.kind, 1.0, now, now, error)
        written = write_response(response, form_of(said, delivery.body))
        envelope = Envelope(said.reply_to or "", said.correlation_id, persistent=said.persistent)
        told = Telling(JobState.REFUSED, 1, 1, self._worker, again=delivery.redelivered)
        return Outgoing(
            self._exchange or response_name(delivery.kind),
            said.reply_to or key(who),
            written.body,
            response_properties(written, envelope, told, final_id(who, 1, digest(delivery.body))),
        )

    def _message(self, response: Response, job: Job, state: JobState, error: str = "") -> Outgoing:
        envelope = job.envelope
        try:
            written = write_response(response, job.form)
        except (FormError, ValueError) as problem:  # a result that has no form
            now = datetime.now(UTC)
            plain: dict[str, Any] = {"error": f"the result cannot be sent: {problem}"}
            response = Response(response.id, response.type, 1.0, response.start, now, **plain)
            written = write_response(response, Form.JSON)
        final = final_id(job.id, envelope.run) if state.final else None
        again = state.final and job.delivery.redelivered
        told = Telling(state, envelope.run, envelope.attempt, self._worker, error, again)
        return Outgoing(
            self._exchange or response_name(job.request.type),
            envelope.reply_to or key(job.id),
            written.body,
            response_properties(written, envelope, told, final),
        )
