"""A carrier without a broker, and work that is done when a test says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import count

from penstock.core.basic_properties import BasicProperties
from penstock_jobs.executors.executor import AttemptListener, JobOutcome
from penstock_jobs.model import JobRequest
from penstock_jobs.queue.worker_connection import (
    JobDelivery,
    JobMessage,
    JobSettlement,
    WorkerListener,
)
from penstock_jobs.shells.shell import TimeLimits


class Line:
    """Keeps `Carrier`: what is settled is settled at once; requests are handed out by `hand`."""

    def __init__(self) -> None:
        self.epoch = 1
        self.paces: list[int] = []
        self.settled: list[JobSettlement] = []
        self.returned: list[JobDelivery] = []
        self.listener: WorkerListener
        self._tags = count(1)

    async def open(self, listener: WorkerListener) -> None:
        self.listener = listener

    async def close(self) -> None: ...

    async def failed(self) -> Exception:
        await asyncio.Event().wait()
        raise AssertionError

    def pace(self, prefetch: int) -> None:
        self.paces.append(prefetch)

    def settle(self, settlement: JobSettlement) -> None:
        self.settled.append(settlement)

    def give_back(self, delivery: JobDelivery) -> None:
        self.returned.append(delivery)

    def delay(self, settlement: JobSettlement, again: JobMessage, seconds: float) -> None:
        self.settled.append(settlement)

    def tell(self, message: JobMessage) -> None: ...

    async def flush(self) -> None: ...

    def hand(self, *ids: str, function: str = "allowed:f") -> list[JobDelivery]:
        said = BasicProperties("application/json")
        bodies = [
            json.dumps({"type": "call", "id": each, "function": function}).encode() for each in ids
        ]
        given = [
            JobDelivery("call", next(self._tags), self.epoch, body, said, False) for body in bodies
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

    def begin(self, request: JobRequest, limits: TimeLimits, report: AttemptListener) -> Lying:
        self.lying[request.id] = Lying(self, request.id, report)
        return self.lying[request.id]

    def do(self, most: int) -> None:
        """The next so many, in a moment."""
        for attempt in self._first(most):
            del self.lying[attempt.id]
            attempt.report.done(JobOutcome(seconds=0.00001))

    def _first(self, most: int) -> Iterator[Lying]:
        yield from list(self.lying.values())[:most]


class Lying:
    def __init__(self, bench: Bench, identity: str, report: AttemptListener) -> None:
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
