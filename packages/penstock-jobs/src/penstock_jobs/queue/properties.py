"""What is said of a request and of a response beside their bodies: by properties and headers.

Clients that know nothing of it lose nothing. `job-run` counts how often a job was asked for by
hand, `job-attempt` how often it was begun in that run: a response belongs to one attempt.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.core.basic_properties import PERSISTENT, TRANSIENT, BasicProperties
from penstock_jobs.formats import EncodedMessage, MessageFormat
from penstock_jobs.model import JobOptions, JobState, read_options, write_options

RUN: Final = "job-run"
ATTEMPT: Final = "job-attempt"
STATE: Final = "job-state"
WORKER: Final = "job-worker"
ERROR: Final = "job-error"
#: Of a final response: the request was handed out before, so it may have been answered before.
REPEATED: Final = "job-again"
#: Where the property is lost on the way.
REPLY_TO: Final = "job-reply-to"
#: A header is no place for the output of a command.
_ERROR_LENGTH: Final = 2_000
_SHORT: Final = 255
_FINAL: Final = uuid.UUID("7d0e7a52-6a8e-5b0c-9f5e-0c9d5f5c8a11")


@dataclass(frozen=True, slots=True)
class RequestProperties:
    """What came with a request."""

    reply_to: str = ""
    correlation_id: str | None = None
    run: int = 1
    attempt: int = 1  #: which this is, the first being 1
    options: JobOptions = JobOptions()  # noqa: RUF009 - frozen
    submitted: int | None = None  #: seconds since 1970, by the requester's clock
    persistent: bool = True


@dataclass(frozen=True, slots=True)
class ResponseProperties:
    """What goes with a response."""

    state: JobState
    run: int
    attempt: int
    worker: str = ""
    error: str = ""
    again: bool = False  #: it may have been said before


_PLAIN: Final = JobOptions()


def read_request_properties(said: BasicProperties) -> RequestProperties:
    headers = said.headers
    if headers is None and said.priority is None:
        return RequestProperties(
            said.reply_to or "", said.correlation_id, 1, 1, _PLAIN, said.timestamp, said.persistent
        )
    headers = headers or {}
    return RequestProperties(
        said.reply_to or str(headers.get(REPLY_TO, ""))[:_SHORT],
        said.correlation_id,
        _number(headers, RUN),
        _number(headers, ATTEMPT),
        read_options(headers, said.priority),
        said.timestamp,
        said.persistent,
    )


def write_request_properties(
    written: EncodedMessage,
    identity: str,
    request_properties: RequestProperties,
    message_id: str | None = None,
) -> BasicProperties:
    headers = write_options(request_properties.options)
    if request_properties.run > 1:
        headers[RUN] = request_properties.run
    return BasicProperties(
        written.content_type,
        headers or None,
        delivery_mode=PERSISTENT if request_properties.persistent else TRANSIENT,
        priority=request_properties.options.priority or None,
        correlation_id=request_properties.correlation_id,
        reply_to=request_properties.reply_to or routing_key(identity),
        message_id=message_id,
        timestamp=request_properties.submitted or int(time.time()),
    )


def final_message_id(identity: str, run: int, asked: bytes = b"") -> str:
    """The same for all final responses to one run of one job, whoever answers and however often:
    by it a second one is known. A refusal goes by what was `asked` as well, for the id may be
    another's."""
    return str(uuid.uuid5(_FINAL, f"{identity}\0{run}\0{asked.hex()}"))


def repeated_response(said: BasicProperties) -> BasicProperties:
    """A response that is sent once more, for want of knowing whether it was."""
    return replace(said, headers={**(said.headers or {}), REPEATED: 1})


def write_response_properties(
    written: EncodedMessage,
    request_properties: RequestProperties,
    told: ResponseProperties,
    message_id: str | None = None,
) -> BasicProperties:
    headers: dict[str, Any] = {STATE: told.state.value, WORKER: told.worker}
    if told.attempt > 1:
        headers[ATTEMPT] = told.attempt
    if told.run > 1:
        headers[RUN] = told.run
    if told.error:
        headers[ERROR] = told.error[:_ERROR_LENGTH]
    if told.again:
        headers[REPEATED] = 1
    return BasicProperties(
        written.content_type,
        headers,
        delivery_mode=PERSISTENT
        if request_properties.persistent and told.state.final
        else TRANSIENT,
        correlation_id=request_properties.correlation_id,
        message_id=message_id,
    )


def read_response_properties(
    said: BasicProperties, *, final: bool, error: str | None
) -> ResponseProperties:
    """What a response says of itself; of one by somebody else's worker, what can be told."""
    headers = said.headers or {}
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


def retry_properties(said: BasicProperties, attempt: int, milliseconds: int) -> BasicProperties:
    """A request as it goes to wait for its next attempt."""
    headers = {**(said.headers or {}), ATTEMPT: attempt}
    return replace(said, headers=_ours(headers), expiration=str(milliseconds))


def dead_letter_properties(said: BasicProperties, error: str) -> BasicProperties:
    """A request as it goes to the dead letters."""
    headers = {**(said.headers or {}), ERROR: error[:_ERROR_LENGTH]}
    return replace(said, headers=_ours(headers), expiration=None)


def replay_properties(said: BasicProperties, run: int) -> BasicProperties:
    """A dead request as it is asked for again."""
    headers = {**(said.headers or {}), RUN: run}
    for name in (ATTEMPT, ERROR):
        headers.pop(name, None)
    return replace(said, headers=_ours(headers), expiration=None, timestamp=int(time.time()))


def routing_key(text: str) -> str:
    """As a routing key, if it can be one."""
    return text if len(text.encode("utf-8", "surrogateescape")) <= _SHORT else ""


def format_of(said: BasicProperties, body: bytes) -> MessageFormat:
    """The form to answer in what could not be read as any."""
    start = body.lstrip()[:2]
    if start.startswith(b"<"):
        return MessageFormat.XML
    if start == b"--":
        return MessageFormat.MIME
    labelled = (said.content_type or "").partition(";")[0].strip()
    return next((form for form in MessageFormat if form.value == labelled), MessageFormat.JSON)


def _ours(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Without what brokers have added on the way, and strangers for fun."""
    return {
        name: value
        for name, value in headers.items()
        if name.startswith("job-") and isinstance(value, str | int | float)
    }


def _number(headers: Mapping[str, Any], name: str) -> int:
    value = headers.get(name, 1)
    return value if isinstance(value, int) and 0 < value < 1 << 31 else 1
