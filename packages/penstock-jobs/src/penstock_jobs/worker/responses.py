"""The messages of a worker about a job: progress, final responses, dead letters, refusals."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock_jobs.errors import JobFormatError
from penstock_jobs.executors.executor import JobOutcome
from penstock_jobs.formats import MessageFormat, write_response
from penstock_jobs.history.changes import digest
from penstock_jobs.model import JobResponse, JobState
from penstock_jobs.queue.properties import (
    RequestProperties,
    ResponseProperties,
    dead_letter_properties,
    final_message_id,
    format_of,
    routing_key,
    write_response_properties,
)
from penstock_jobs.queue.topology import dead_name, response_name
from penstock_jobs.queue.worker_connection import JobDelivery, JobMessage
from penstock_jobs.worker.job import WorkerJob


class JobResponseWriter:
    """`worker` is the name in the responses; `exchange` replaces the exchange of each type."""

    def __init__(self, worker: str, exchange: str | None = None) -> None:
        self._worker = worker
        self._exchange = exchange

    def progress(
        self, job: WorkerJob, state: JobState = JobState.RUNNING, error: str = ""
    ) -> JobMessage:
        # A progress of 1 marks the final response, so a running job never reports it.
        share = min(job.share, 0.999) if state is JobState.RUNNING else 0.0
        output, output_start = job.output.take()
        response = JobResponse(
            job.id,
            job.request.type,
            share,
            job.start,
            job.finish,
            results=job.results,
            output=output,
            output_start=output_start,
        )
        return self._message(response, job, state, error)

    def done(self, job: WorkerJob, outcome: JobOutcome) -> JobMessage:
        output, output_start = job.output.take()
        response = JobResponse(
            job.id,
            job.request.type,
            1.0,
            job.start,
            datetime.now(UTC),
            results=outcome.results,
            models=outcome.models,
            value=outcome.value,
            output=output,
            output_start=output_start,
        )
        return self._message(response, job, JobState.DONE)

    def failed(self, job: WorkerJob, state: JobState, error: str) -> JobMessage:
        now = datetime.now(UTC)
        output, output_start = job.output.take()
        response = JobResponse(
            job.id,
            job.request.type,
            1.0,
            job.start or now,
            now,
            error,
            output=output,
            output_start=output_start,
        )
        return self._message(response, job, state)

    def dead_letter(self, job: WorkerJob, error: str) -> JobMessage:
        properties = dead_letter_properties(job.delivery.properties, error)
        return JobMessage("", dead_name(job.request.type), job.delivery.body, properties)

    def refused(self, delivery: JobDelivery, error: str, identity: str = "") -> JobMessage:
        """The response to a request that cannot be read, addressed by what its properties give."""
        given = delivery.properties
        now = datetime.now(UTC)
        name = identity or given.reply_to or given.correlation_id or given.message_id or "unknown"
        response = JobResponse(name, delivery.kind, 1.0, now, now, error)
        encoded = write_response(response, format_of(given, delivery.body))
        request = RequestProperties(
            given.reply_to or "", given.correlation_id, persistent=given.persistent
        )
        properties = ResponseProperties(
            JobState.REFUSED, 1, 1, self._worker, repeated=delivery.redelivered
        )
        message_id = final_message_id(name, 1, digest(delivery.body))
        return JobMessage(
            self._exchange or response_name(delivery.kind),
            given.reply_to or routing_key(name),
            encoded.body,
            write_response_properties(encoded, request, properties, message_id),
        )

    def _message(
        self, response: JobResponse, job: WorkerJob, state: JobState, error: str = ""
    ) -> JobMessage:
        request = job.properties
        try:
            encoded = write_response(response, job.format)
        except (JobFormatError, ValueError) as problem:  # the format cannot express the result
            now = datetime.now(UTC)
            text = f"the result cannot be encoded: {problem}"
            response = JobResponse(response.id, response.type, 1.0, response.start, now, text)
            encoded = write_response(response, MessageFormat.JSON)
        message_id = final_message_id(job.id, request.run) if state.final else None
        repeated = state.final and job.delivery.redelivered
        properties = ResponseProperties(
            state, request.run, request.attempt, self._worker, error, repeated
        )
        return JobMessage(
            self._exchange or response_name(job.request.type),
            request.reply_to or routing_key(job.id),
            encoded.body,
            write_response_properties(encoded, request, properties, message_id),
        )
