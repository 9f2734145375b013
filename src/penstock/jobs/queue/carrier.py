"""What a worker needs of a broker, whichever protocol leads there.

A request is settled together with the messages that answer it: both or neither, where the protocol
can promise that. What was handed out is the worker's until its connection goes; what was not
settled by then will be handed out again, here or elsewhere, and the worker is told which it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.core.properties import Properties
from penstock.jobs.queue.wishes import Wish


@dataclass(slots=True)
class Delivery:
    """A request that was handed out."""

    kind: str  #: whose queue it came from
    tag: int
    epoch: int  #: of the connection; on another it cannot be settled
    body: bytes
    said: Properties
    redelivered: bool
    handle: Any = None  #: the carrier's own


@dataclass(frozen=True, slots=True)
class Outgoing:
    exchange: str
    key: str
    body: bytes
    said: Properties


@dataclass(slots=True)
class Settlement:
    """A request, and what answers it. `token` is the worker's own."""

    delivery: Delivery
    messages: Sequence[Outgoing]
    token: Any = None


@dataclass(slots=True)
class Listener:
    """Whom a carrier tells, on the loop, and all of one read at once."""

    taken: Callable[[list[Delivery]], None]
    settled: Callable[[list[Settlement]], None]
    #: Their connection went, and they may be settled or not.
    unsettled: Callable[[list[Settlement]], None]
    #: The connection went: what was handed out, and is not begun, is not ours any more.
    lost: Callable[[], None]
    wished: Callable[[Wish], None]


class Carrier(Protocol):
    @property
    def epoch(self) -> int:
        """Of the present connection; another begins with the next."""

    async def open(self, listener: Listener) -> None:
        """Declare, and begin to take."""

    async def close(self) -> None: ...

    async def failed(self) -> Exception:
        """Returns when there will be no other connection, with the reason."""

    def pace(self, prefetch: int) -> None:
        """How many of each type may be handed out; 0 is none."""

    def settle(self, settlement: Settlement) -> None: ...

    def give_back(self, delivery: Delivery) -> None:
        """Somebody else should have it, or we, later."""

    def delay(self, settlement: Settlement, again: Outgoing, seconds: float) -> None:
        """Settle it now, and let `again` come to its queue when the time is over."""

    def tell(self, message: Outgoing) -> None:
        """Progress: it is no loss if one is lost."""

    async def flush(self) -> None:
        """Returns when all that was to be settled is, or cannot be."""
