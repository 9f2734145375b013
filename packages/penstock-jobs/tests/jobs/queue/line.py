"""A worker connection without a broker, and an executor that a test controls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import count

from penstock.core.basic_properties import BasicProperties
from penstock_jobs.errors import JobFailed
from penstock_jobs.executors.executor import AttemptListener, JobOutcome
from penstock_jobs.model import JobRequest
from penstock_jobs.queue.worker_connection import (
    JobDelivery,
    JobMessage,
    JobSettlement,
    WorkerListener,
)


class Line:
    """Implements `WorkerConnection`: settles at once; `hand` delivers requests."""

    def __init__(self) -> None:
        self.epoch = 1
        self.prefetches: list[int] = []
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

    def set_prefetch(self, prefetch: int) -> None:
        self.prefetches.append(prefetch)

    def settle(self, settlement: JobSettlement) -> None:
        self.settled.append(settlement)

    def requeue(self, delivery: JobDelivery) -> None:
        self.returned.append(delivery)

    def retry_later(self, settlement: JobSettlement, retry: JobMessage, seconds: float) -> None:
        self.settled.append(settlement)

    def publish_progress(self, message: JobMessage) -> None: ...

    async def flush(self) -> None: ...

    def hand(self, *ids: str, function: str = "allowed:f") -> list[JobDelivery]:
        properties = BasicProperties("application/json")
        bodies = [
            json.dumps({"type": "call", "id": each, "function": function}).encode() for each in ids
        ]
        given = [
            JobDelivery("call", next(self._tags), self.epoch, body, properties, False)
            for body in bodies
        ]
        self.listener.received(given)
        return given


class Bench:
    """Implements `JobExecutor`: attempts wait until a test ends them; only the first is started."""

    types = ("call",)
    can_prefetch = True

    def __init__(self) -> None:
        self.lying: dict[str, Lying] = {}

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def start(self, request: JobRequest, listener: AttemptListener) -> Lying:
        self.lying[request.id] = Lying(self, request.id, listener)
        return self.lying[request.id]

    def do(self, most: int) -> None:
        """The next so many, in a moment."""
        for attempt in self._first(most):
            del self.lying[attempt.id]
            attempt.listener.done(JobOutcome(seconds=0.00001))

    def _first(self, most: int) -> Iterator[Lying]:
        yield from list(self.lying.values())[:most]


class Lying:
    def __init__(self, bench: Bench, identity: str, listener: AttemptListener) -> None:
        self.id = identity
        self.listener = listener
        self.interrupted = False
        self._bench = bench

    @property
    def is_started(self) -> bool:
        return next(iter(self._bench.lying.values())) is self

    def interrupt(self) -> None:
        self.interrupted = True

    def terminate(self, reason: str) -> None:
        del self._bench.lying[self.id]
        self.listener.failed(JobFailed(reason))

    def withdraw(self) -> bool:
        return not self.is_started and self._bench.lying.pop(self.id, None) is not None
