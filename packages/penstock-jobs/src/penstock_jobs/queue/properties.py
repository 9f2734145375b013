"""Properties and headers of requests and responses.

All headers are optional, so clients that do not know them still work. `job-run` counts how often a
job was submitted by hand, `job-attempt` the attempts within that run.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.core.basic_properties import PERSISTENT, TRANSIENT, BasicProperties
from penstock.core.trace_context import TRACEPARENT, TRACESTATE
from penstock_jobs.formats import EncodedMessage, MessageFormat
from penstock_jobs.model import JobOptions, JobState, read_options, write_options

RUN: Final = "job-run"
ATTEMPT: Final = "job-attempt"
STATE: Final = "job-state"
WORKER: Final = "job-worker"
#: Of a request that a scheduler may have published twice: workers ask the history about it.
SCHEDULED: Final = "job-scheduled"
ERROR: Final = "job-error"
#: Of a final response whose request was redelivered: the same response may exist already.
REPEATED: Final = "job-again"
#: For protocols that do not carry the property.
REPLY_TO: Final = "job-reply-to"
#: An error may be the output of a command, too long for a header.
_ERROR_LENGTH: Final = 2_000
_SHORT: Final = 255
_FINAL: Final = uuid.UUID("7d0e7a52-6a8e-5b0c-9f5e-0c9d5f5c8a11")
_DEFAULTS: Final = JobOptions()


@dataclass(frozen=True, slots=True)
class RequestProperties:
    reply_to: str = ""
    correlation_id: str | None = None
    run: int = 1
    attempt: int = 1
    options: JobOptions = _DEFAULTS
    submitted: int | None = None  #: seconds since 1970, by the requester's clock
    persistent: bool = True
    scheduled: bool = False  #: a scheduler has published it, perhaps twice


@dataclass(frozen=True, slots=True)
class ResponseProperties:
    state: JobState
    run: int
    attempt: int
    worker: str = ""
    error: str = ""
    repeated: bool = False


def read_request_properties(properties: BasicProperties) -> RequestProperties:
    headers = properties.headers
    if headers is None and properties.priority is None:  # the common case, without parsing
        return RequestProperties(
            properties.reply_to or "",
            properties.correlation_id,
            1,
            1,
            _DEFAULTS,
            properties.timestamp,
            properties.persistent,
        )
    headers = headers or {}
    return RequestProperties(
        properties.reply_to or str(headers.get(REPLY_TO, ""))[:_SHORT],
        properties.correlation_id,
        _number(headers, RUN),
        _number(headers, ATTEMPT),
        read_options(headers, properties.priority),
        properties.timestamp,
        properties.persistent,
        SCHEDULED in headers,
    )


def write_request_properties(
    encoded: EncodedMessage, identity: str, request: RequestProperties
) -> BasicProperties:
    headers = write_options(request.options)
    if request.run > 1:
        headers[RUN] = request.run
    if request.scheduled:
        headers[SCHEDULED] = 1
    return BasicProperties(
        encoded.content_type,
        headers or None,
        delivery_mode=PERSISTENT if request.persistent else TRANSIENT,
        priority=request.options.priority or None,
        correlation_id=request.correlation_id,
        reply_to=request.reply_to or routing_key(identity),
        timestamp=request.submitted or int(time.time()),
    )


def final_message_id(identity: str, run: int, request_digest: bytes = b"") -> str:
    """The same for all final responses to one run of a job, so that receivers can deduplicate.

    A refusal includes the digest of the request, because its id may belong to another job.
    """
    return str(uuid.uuid5(_FINAL, f"{identity}\0{run}\0{request_digest.hex()}"))


def repeated_response(properties: BasicProperties) -> BasicProperties:
    """The properties of a response that is sent again because it was not confirmed."""
    return replace(properties, headers={**(properties.headers or {}), REPEATED: 1})


def write_response_properties(
    encoded: EncodedMessage,
    request: RequestProperties,
    response: ResponseProperties,
    message_id: str | None = None,
) -> BasicProperties:
    headers: dict[str, Any] = {STATE: response.state.value, WORKER: response.worker}
    if response.attempt > 1:
        headers[ATTEMPT] = response.attempt
    if response.run > 1:
        headers[RUN] = response.run
    if response.error:
        headers[ERROR] = response.error[:_ERROR_LENGTH]
    if response.repeated:
        headers[REPEATED] = 1
    persistent = request.persistent and response.state.final
    return BasicProperties(
        encoded.content_type,
        headers,
        delivery_mode=PERSISTENT if persistent else TRANSIENT,
        correlation_id=request.correlation_id,
        message_id=message_id,
    )


def read_response_properties(
    properties: BasicProperties, *, final: bool, error: str | None
) -> ResponseProperties:
    """For a response of another worker without headers, the state follows from `final` and
    `error`."""
    headers = properties.headers or {}
    try:
        state = JobState(headers.get(STATE, ""))
    except ValueError:
        state = JobState.FAILED if error else JobState.DONE if final else JobState.RUNNING
    return ResponseProperties(
        state,
        _number(headers, RUN),
        _number(headers, ATTEMPT),
        str(headers.get(WORKER, "")),
        str(headers.get(ERROR, "")) or (error or ""),
    )


def retry_properties(
    properties: BasicProperties, attempt: int, milliseconds: int
) -> BasicProperties:
    headers = {**(properties.headers or {}), ATTEMPT: attempt}
    return replace(properties, headers=_job_headers(headers), expiration=str(milliseconds))


def dead_letter_properties(properties: BasicProperties, error: str) -> BasicProperties:
    headers = {**(properties.headers or {}), ERROR: error[:_ERROR_LENGTH]}
    return replace(properties, headers=_job_headers(headers), expiration=None)


def replay_properties(properties: BasicProperties, run: int) -> BasicProperties:
    """The properties of a dead letter that is submitted again."""
    headers = {**(properties.headers or {}), RUN: run}
    for name in (ATTEMPT, ERROR):
        headers.pop(name, None)
    return replace(
        properties, headers=_job_headers(headers), expiration=None, timestamp=int(time.time())
    )


def routing_key(text: str) -> str:
    """The text, or nothing if it is too long for a routing key."""
    return text if len(text.encode("utf-8", "surrogateescape")) <= _SHORT else ""


def format_of(properties: BasicProperties, body: bytes) -> MessageFormat:
    """The format to respond in to a request that cannot be read."""
    start = body.lstrip()[:2]
    if start.startswith(b"<"):
        return MessageFormat.XML
    if start == b"--":
        return MessageFormat.MIME
    label = (properties.content_type or "").partition(";")[0].strip()
    return next((form for form in MessageFormat if form.value == label), MessageFormat.JSON)


def _job_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Those of jobs and of the trace, without others that brokers and programs have added."""
    return {
        name: value
        for name, value in headers.items()
        if (name.startswith("job-") or name in (TRACEPARENT, TRACESTATE))
        and isinstance(value, str | int | float)
    }


def _number(headers: Mapping[str, Any], name: str) -> int:
    value = headers.get(name, 1)
    return value if isinstance(value, int) and 0 < value < 1 << 31 else 1
