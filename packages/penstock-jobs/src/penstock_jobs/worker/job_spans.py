"""Spans of a worker's attempts, for OpenTelemetry.

An attempt is `process TYPE`, a child of the span that submitted the job. Its final response is
`publish EXCHANGE`, and carries that context to the requester; a retry carries the request's own.
"""

from __future__ import annotations

from contextvars import Token
from dataclasses import replace
from typing import cast

from opentelemetry import context as span_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span

from penstock.core.message_spans import MessageSpans, context_of, set_error
from penstock_jobs.queue.topology import request_name
from penstock_jobs.queue.worker_connection import JobMessage
from penstock_jobs.worker.job import WorkerJob
from penstock_jobs.worker.middleware import JobDecision


class JobSpans:
    def __init__(self, spans: MessageSpans, worker: str) -> None:
        self._spans = spans
        self._worker = worker
        self._running: dict[WorkerJob, Span] = {}

    def start(self, job: WorkerJob) -> object:
        """Begin the span of an attempt. It is the current one, for what the executor starts, until
        `detach` is called with the result."""
        parent = context_of(job.delivery.properties.headers)
        span = self._running[job] = self._spans.start(
            "process",
            "process",
            request_name(job.request.type),
            parent,
            message_id=job.delivery.properties.message_id,
            attributes={
                "messaging.message.body.size": len(job.delivery.body),
                "penstock.job.id": job.id,
                "penstock.job.type": job.request.type,
                "penstock.job.attempt": job.attempt_number,
                "penstock.job.worker": self._worker,
            },
        )
        return span_context.attach(trace.set_span_in_context(span, parent))

    def detach(self, token: object) -> None:
        span_context.detach(cast("Token[Context]", token))

    def failed(self, job: WorkerJob, error: Exception) -> None:
        if (span := self._running.get(job)) is not None:
            set_error(span, error)

    def requeued(self, job: WorkerJob) -> None:
        if (span := self._running.pop(job, None)) is not None:
            span.set_attribute("penstock.job.requeued", True)
            span.end()

    def respond(self, job: WorkerJob, decision: JobDecision) -> JobDecision:
        """The decision, with the context in its messages; ends the span of the attempt."""
        span = self._running.pop(job, None)
        if span is None:  # refused or cancelled before it ran
            return decision
        with trace.use_span(span, end_on_exit=True):
            messages = [self._publish(each) for each in decision.messages]
        return replace(decision, messages=messages)

    def _publish(self, message: JobMessage) -> JobMessage:
        properties = message.properties
        span, headers = self._spans.publish(
            f"{message.exchange}:{message.key}",
            properties.headers,
            message_id=properties.message_id,
        )
        span.end()
        return replace(message, properties=replace(properties, headers=headers))
