"""The worker: what it takes, and what becomes of it when connections break or somebody cancels.

It is one loop that never does the work itself. A request is acknowledged with its final response;
until then it is the broker's to hand out again. Work goes on when a connection breaks: the request
comes again, here or elsewhere, and whoever is handed it last answers, once. When a job is begun is
`places.py`, what is made of its end `endings.py`, what is no job at all `intake.py`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.jobs.queue.carrier import Carrier, Delivery, Listener, Settlement
from penstock.jobs.queue.wishes import Wish
from penstock.jobs.shells.shell import Limits
from penstock.jobs.work.kind import Kind
from penstock.jobs.worker.answers import Answers
from penstock.jobs.worker.endings import CANCELLED, Endings, JobReport
from penstock.jobs.worker.figures import Figures
from penstock.jobs.worker.intake import Intake
from penstock.jobs.worker.job import Job, Stage
from penstock.jobs.worker.ledger import Ledger
from penstock.jobs.worker.memory import Memory
from penstock.jobs.worker.places import Places
from penstock.jobs.worker.retrying import Backoff

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    slots: int = 1  #: jobs at a time
    backoff: Backoff = field(default_factory=Backoff)
    soft: float | None = None  #: seconds, for those who ask for no limit
    hard: float | None = None
    name: str = ""
    response_exchange: str | None = None  #: instead of the usual ones


class Worker:
    def __init__(
        self,
        carrier: Carrier,
        kinds: Sequence[Kind],
        settings: WorkerSettings | None = None,
        ledger: Ledger | None = None,
        types: Sequence[str] | None = None,
    ) -> None:
        """`types` are those of the kinds that requests are taken for, if not all."""
        self.settings = settings = settings or WorkerSettings()
        self.name = settings.name or f"{socket.gethostname()}:{os.getpid()}"
        self.figures = figures = Figures()
        self._carrier = carrier
        self._all_kinds = tuple(kinds)
        self._kinds: Mapping[str, Kind] = {
            name: kind for kind in kinds for name in kind.types if types is None or name in types
        }
        self._ledger = ledger
        self._memory = Memory() if ledger is None else Memory(ledger.release)
        self._places = Places(
            settings.slots,
            self._kinds,
            carrier,
            figures,
            begin=self._begin,
            give_back=self._give_back,
            long=lambda job: self._endings.announce(job),
        )
        answers = Answers(self.name, settings.response_exchange)
        self._endings = Endings(carrier, answers, self._places, figures, settings.backoff)
        self._intake = Intake(carrier, self.types, self._memory, answers, figures, ledger)
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(self._kinds)

    # A life.

    async def open(self) -> None:
        """Returns when requests are taken; if that cannot be, nothing is left open."""
        async with AsyncExitStack() as opened:
            for kind in self._all_kinds:
                opened.push_async_callback(kind.close)
                await kind.open()
            await self._carrier.open(
                Listener(self._taken, self._settled, self._unsettled, self._lost, self._wished)
            )
            opened.pop_all()
        log.info("worker ready", name=self.name, types=sorted(self._kinds))

    async def run(self, stop: asyncio.Event, grace: float | None = None) -> None:
        """Until told to stop; then jobs are finished, or after `grace` seconds given back."""
        stopped = asyncio.create_task(stop.wait())
        failed = asyncio.create_task(self._carrier.failed())
        try:
            await asyncio.wait((stopped, failed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self.close(0.0 if failed.done() else grace)
            for task in (stopped, failed):
                task.cancel()
        if failed.done() and not failed.cancelled():
            raise failed.result()

    async def close(self, grace: float | None = 0.0) -> None:
        self._stopping = True
        self._places.stop()
        try:
            async with asyncio.timeout(grace):
                await self._places.empty()
        except TimeoutError:
            for job in self._places.running:
                self._hand_back(job)
        await self._carrier.flush()
        self._places.close()
        for task in list(self._tasks):
            task.cancel()
        for kind in self._all_kinds:
            await kind.close()
        await self._carrier.close()
        if self._ledger is not None:
            await self._ledger.close()

    # Taking.

    def _taken(self, deliveries: list[Delivery]) -> None:
        self.figures.taken += len(deliveries)
        unsure: list[Job] = []
        for delivery in deliveries:
            if self._stopping:
                self._carrier.give_back(delivery)
            elif (job := self._intake.read(delivery)) is None:
                continue
            elif self._memory.unwanted(job):
                self._endings.cancelled(job)
            elif self._intake.doubts(job):
                unsure.append(job)
            else:
                self._places.queue(job)
        if unsure:
            self._start(self._look_up(unsure))
        self._places.fill()

    async def _look_up(self, jobs: list[Job]) -> None:
        for job in await self._intake.look_up(jobs):
            self._places.queue(job)
        self._places.fill()

    def _begin(self, job: Job, kind: Kind) -> None:
        job.stage = Stage.RUNNING
        job.begun = asyncio.get_running_loop().time()
        job.start = datetime.now(UTC)
        options = job.envelope.options
        limits = Limits(options.soft or self.settings.soft, options.hard or self.settings.hard)
        try:
            job.attempt = kind.begin(job.request, limits, JobReport(self._endings, job))
        except Exception as error:
            if not isinstance(error, PenstockError):
                log.exception("a job could not be begun", job=job.id)
            self._endings.failed(job, error)

    # What the carrier says.

    def _settled(self, settlements: list[Settlement]) -> None:
        for settlement in settlements:
            if (job := settlement.token) is None:
                continue
            self._memory.answered(job)
            if job.delivery is not settlement.delivery:  # a copy came while this was on its way
                self._carrier.settle(Settlement(job.delivery, ()))

    def _lost(self) -> None:
        """What waits is handed out again; what runs goes on, and its request may come again."""
        self.figures.lost += 1
        for job in self._places.forget_waiting():
            self._memory.drop(job)

    def _unsettled(self, settlements: list[Settlement]) -> None:
        for settlement in settlements:
            job = settlement.token
            if not isinstance(job, Job):
                continue
            came = job.delivery is not settlement.delivery  # again, while this was on its way
            if not job.final:
                self._memory.drop(job)  # to be tried again anyway
                if came:
                    self._carrier.give_back(job.delivery)
            elif came:
                self._carrier.settle(Settlement(job.delivery, job.messages, job))
            else:
                self._memory.unsure(job)

    def _wished(self, wish: Wish) -> None:
        self._memory.wish(wish)
        job = self._memory.jobs.get(wish.cancel)
        if job is None or not self._memory.unwanted(job):
            return
        if job.stage is Stage.WAITING:
            self._places.skip(job)
            self._endings.cancelled(job)
        elif job.stage is Stage.RUNNING and job.attempt is not None:
            job.cancelled = True
            job.attempt.end(CANCELLED)

    # Giving back.

    def _give_back(self, job: Job) -> None:
        self.figures.returned += 1
        self._memory.drop(job)
        self._carrier.give_back(job.delivery)

    def _hand_back(self, job: Job) -> None:
        """End what runs, so that another may do it."""
        job.stage = Stage.ANSWERED
        self._places.vacate(job)
        self._give_back(job)
        if job.attempt is not None:
            job.attempt.end("the worker stops")

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
