"""A carrier without a broker, and work that is done when a test says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import count

from penstock.core.properties import Properties
from penstock.jobs.model import Request
from penstock.jobs.queue.carrier import Delivery, Listener, Outgoing, Settlement
from penstock.jobs.shells.shell import Limits
from penstock.jobs.work.kind import Outcome, Report


class Line:
    """Keeps `Carrier`: what is settled is settled at once; requests are handed out by `hand`."""

    def __init__(self) -> None:
        self.epoch = 1
        self.paces: list[int] = []
        self.settled: list[Settlement] = []
        self.returned: list[Delivery] = []
        self.listener: Listener
        self._tags = count(1)

    async def open(self, listener: Listener) -> None:
        self.listener = listener

    async def close(self) -> None: ...

    async def failed(self) -> Exception:
        await asyncio.Event().wait()
        raise AssertionError

    def pace(self, prefetch: int) -> None:
        self.paces.append(prefetch)

    def settle(self, settlement: Settlement) -> None:
        self.settled.append(settlement)

    def give_back(self, delivery: Delivery) -> None:
        self.returned.append(delivery)

    def delay(self, settlement: Settlement, again: Outgoing, seconds: float) -> None:
        self.settled.append(settlement)

    def tell(self, message: Outgoing) -> None: ...

    async def flush(self) -> None: ...

    def hand(self, *ids: str, function: str = "allowed:f") -> list[Delivery]:
        said = Properties("application/json")
        bodies = [
            json.dumps({"type": "call", "id": each, "function": function}).encode() for each in ids
        ]
        given = [
            Delivery("call", next(self._tags), self.epoch, body, said, False) for body in bodies
        ]
        self.listener.taken(given)
        return given


class Bench:
    """Keeps `Kind`: attempts lie on it until they are ended; only the first is underway."""

    types = ("call",)
    ahead = True

    def __init__(self) -> None:
        self.lying: dict[str, Lying] = {}

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def begin(self, request: Request, limits: Limits, report: Report) -> Lying:
        self.lying[request.id] = Lying(self, request.id, report)
        return self.lying[request.id]

    def do(self, most: int) -> None:
        """The next so many, in a moment."""
        for attempt in self._first(most):
            del self.lying[attempt.id]
            attempt.report.done(Outcome(seconds=0.00001))

    def _first(self, most: int) -> Iterator[Lying]:
        yield from list(self.lying.values())[:most]


class Lying:
    def __init__(self, bench: Bench, identity: str, report: Report) -> None:
        self.id = identity
        self.report = report
        self._bench = bench

    @property
    def underway(self) -> bool:
        return next(iter(self._bench.lying.values())) is self

    def end(self, reason: str) -> None:
        del self._bench.lying[self.id]

    def withdraw(self) -> bool:
        return not self.underway and self._bench.lying.pop(self.id, None) is not None
