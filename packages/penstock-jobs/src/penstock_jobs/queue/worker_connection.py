"""What a worker needs of a broker, whichever protocol leads there.

A request is settled together with the messages that answer it: both or neither, where the protocol
can promise that. What was handed out is the worker's until its connection goes; what was not
settled by then will be handed out again, here or elsewhere, and the worker is told which it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.core.basic_properties import BasicProperties


@dataclass(slots=True)
class JobDelivery:
    """A request that was handed out."""

    kind: str  #: whose queue it came from
    tag: int
    epoch: int  #: of the connection; on another it cannot be settled
    body: bytes
    said: BasicProperties
    redelivered: bool
    handle: Any = None  #: the carrier's own


@dataclass(frozen=True, slots=True)
class JobMessage:
    exchange: str
    key: str
    body: bytes
    said: BasicProperties


@dataclass(slots=True)
class JobSettlement:
    """A request, and what answers it. `token` is the worker's own."""

    delivery: JobDelivery
    messages: Sequence[JobMessage]
    token: Any = None


@dataclass(slots=True)
class WorkerListener:
    """Whom a carrier tells, on the loop, and all of one read at once."""

    taken: Callable[[list[JobDelivery]], None]
    settled: Callable[[list[JobSettlement]], None]
    #: Their connection went, and they may be settled or not.
    unsettled: Callable[[list[JobSettlement]], None]
    #: The connection went: what was handed out, and is not begun, is not ours any more.
    lost: Callable[[], None]
    cancel_requested: Callable[[CancelRequest], None]


class WorkerConnection(Protocol):
    @property
    def epoch(self) -> int:
        """Of the present connection; another begins with the next."""

    async def open(self, listener: WorkerListener) -> None:
        """Declare, and begin to take."""

    async def close(self) -> None: ...

    async def failed(self) -> Exception:
        """Returns when there will be no other connection, with the reason."""

    def pace(self, prefetch: int) -> None:
        """How many of each type may be handed out; 0 is none."""

    def settle(self, settlement: JobSettlement) -> None: ...

    def give_back(self, delivery: JobDelivery) -> None:
        """Somebody else should have it, or we, later."""

    def delay(self, settlement: JobSettlement, again: JobMessage, seconds: float) -> None:
        """Settle it now, and let `again` come to its queue when the time is over."""

    def tell(self, message: JobMessage) -> None:
        """Progress: it is no loss if one is lost."""

    async def flush(self) -> None:
        """Returns when all that was to be settled is, or cannot be."""


# Wishes about jobs, as they travel to all workers: that one be cancelled.

_CANCEL: Final = "cancel"


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """It holds for what was asked for before it; or for that run and those before, where one is
    named."""

    cancel: str
    at: float  #: seconds since 1970
    run: int | None = None

    def holds(self, run: int, submitted: int | None) -> bool:
        if self.run is not None:
            return run <= self.run
        # Times of requests are whole seconds: of one that was asked for again, and in the same
        # second, it is taken that the wish came before.
        return run == 1 or (submitted or 0) < int(self.at)


def write_cancel_request(cancel_request: CancelRequest) -> bytes:
    return json.dumps(
        {_CANCEL: cancel_request.cancel, "at": cancel_request.at, "run": cancel_request.run}
    ).encode()


def read_cancel_request(body: bytes) -> CancelRequest | None:
    """Nothing, if it is not one."""
    try:
        said = json.loads(body)
        run = said.get("run")
        return CancelRequest(
            str(said[_CANCEL]), float(said["at"]), None if run is None else int(run)
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
