"""The interface between a worker and a broker, for any protocol.

A request is settled together with the messages that respond to it, atomically where the protocol
allows it. Requests that are not settled when a connection is lost are redelivered by the broker,
and the worker learns which settlements are unconfirmed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.core.basic_properties import BasicProperties

#: How long stored cancel requests may take to be read before the worker starts without them.
CATCH_UP_SECONDS: Final = 10.0


@dataclass(slots=True)
class JobDelivery:
    """A delivered request."""

    kind: str  #: the type of its queue
    tag: int
    epoch: int  #: of the connection; it cannot be settled in another epoch
    body: bytes
    properties: BasicProperties
    redelivered: bool
    handle: Any = None  #: for the connection


@dataclass(frozen=True, slots=True)
class JobMessage:
    exchange: str
    key: str
    body: bytes
    properties: BasicProperties


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    """A copy of a request or response."""

    body: bytes
    properties: BasicProperties
    acknowledge: Callable[[], None]


@dataclass(slots=True)
class JobSettlement:
    """A request to acknowledge, with the messages to publish."""

    delivery: JobDelivery
    messages: Sequence[JobMessage]
    job: Any = None  #: for the worker


@dataclass(slots=True)
class WorkerListener:
    """Called on the event loop, once for everything in one read."""

    received: Callable[[list[JobDelivery]], None]
    settled: Callable[[list[JobSettlement]], None]
    #: The connection closed before the broker confirmed these.
    unconfirmed: Callable[[list[JobSettlement]], None]
    #: The connection closed: the broker redelivers every request that is not settled.
    connection_lost: Callable[[], None]
    cancel_requested: Callable[[CancelRequest], None]


class WorkerConnection(Protocol):
    @property
    def epoch(self) -> int:
        """Changes with each new connection."""

    async def open(self, listener: WorkerListener) -> None:
        """Declare exchanges and queues and start to consume."""

    async def close(self) -> None: ...

    async def failed(self) -> Exception:
        """Returns the reason when no further connection is attempted."""

    def set_prefetch(self, prefetch: int) -> None:
        """For each type; 0 stops the consumers."""

    def settle(self, settlement: JobSettlement) -> None: ...

    def requeue(self, delivery: JobDelivery) -> None: ...

    def retry_later(self, settlement: JobSettlement, retry: JobMessage, seconds: float) -> None:
        """Settle now, and deliver `retry` to the request queue after the delay."""

    def publish_progress(self, message: JobMessage) -> None:
        """Without a confirm: a lost progress message does no harm."""

    async def flush(self) -> None:
        """Returns when every settlement is confirmed or cannot be."""


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """A message to all workers: cancel a job, up to `run`, or what was submitted before `at`."""

    cancel: str
    at: float  #: seconds since 1970
    run: int | None = None

    def applies_to(self, run: int, submitted: int | None) -> bool:
        if self.run is not None:
            return run <= self.run
        # Requests have times in whole seconds. One that was submitted again in the same second is
        # taken to be later than the cancel request.
        return run == 1 or (submitted or 0) < int(self.at)


def write_cancel_request(request: CancelRequest) -> bytes:
    return json.dumps({"cancel": request.cancel, "at": request.at, "run": request.run}).encode()


def read_cancel_request(body: bytes) -> CancelRequest | None:
    """None for any other message."""
    try:
        fields = json.loads(body)
        run = fields.get("run")
        return CancelRequest(
            str(fields["cancel"]), float(fields["at"]), None if run is None else int(run)
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
