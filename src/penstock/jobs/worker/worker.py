"""The worker: what it takes, what it begins when, and what it answers.

It is one loop that never does the work itself. A request is acknowledged with its final response;
until then it is the broker's to hand out again. Work goes on when a connection breaks: the request
comes again, here or elsewhere, and whoever is handed it last answers, once. While jobs are short it
takes many at a time; as soon as one is not, what waits behind it is given back, so that others who
are free can have it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.jobs.history.records import JobState
from penstock.jobs.model import Result
from penstock.jobs.queue.carrier import Carrier, Delivery, Listener, Outgoing, Settlement
from penstock.jobs.queue.envelope import again
from penstock.jobs.queue.wishes import Wish
from penstock.jobs.shells.shell import Limits
from penstock.jobs.work.kind import Kind, Outcome, lasting, sentence
from penstock.jobs.worker.answers import Answers
from penstock.jobs.worker.figures import Figures
from penstock.jobs.worker.gait import Gait
from penstock.jobs.worker.intake import Intake
from penstock.jobs.worker.job import Job, Stage
from penstock.jobs.worker.ledger import Ledger
from penstock.jobs.worker.memory import Memory
from penstock.jobs.worker.retrying import Backoff

log = get_logger(__name__)

#: One that takes longer is announced as running, and is not kept company by short ones.
_LONG_SECONDS: Final = 0.25
_LOOK_SECONDS: Final = 0.125
_CANCELLED: Final = "it was cancelled"


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
        self.settings = settings or WorkerSettings()
        self.name = self.settings.name or f"{socket.gethostname()}:{os.getpid()}"
        self.figures = Figures()
        self._carrier = carrier
        self._all_kinds = tuple(kinds)
        self._kinds: Mapping[str, Kind] = {
            name: kind for kind in kinds for name in kind.types if types is None or name in types
        }
        self._answers = Answers(self.name, self.settings.response_exchange)
        self._memory = Memory()
        self._intake = Intake(
            carrier, self.types, self._memory, self._answers, self.figures, ledger
        )
        self._gait = Gait(self.settings.slots)
        self._waiting: deque[Job] = deque()
        self._running: dict[str, Job] = {}
        self._stopping = False
        self._beginning = False
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._tick: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(self._kinds)

    # A life.

    async def open(self) -> None:
        """Returns when requests are taken."""
        self._loop = asyncio.get_running_loop()
        for kind in self._all_kinds:
            await kind.open()
        await self._carrier.open(
            Listener(self._taken, self._settled, self._unsettled, self._lost, self._wished)
        )
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
        self._carrier.pace(0)
        for job in self._waiting:
            self._give_back(job)
        self._waiting.clear()
        self._withdraw()
        try:
            async with asyncio.timeout(grace):
                await self._quiet.wait()
        except TimeoutError:
            for job in list(self._running.values()):
                self._hand_back(job)
        await self._carrier.flush()
        if self._tick is not None:
            self._tick.cancel()
        for task in list(self._tasks):
            task.cancel()
        for kind in self._all_kinds:
            await kind.close()
        await self._carrier.close()

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
                self._conclude(job, JobState.CANCELLED, _CANCELLED)
            elif self._intake.doubts(job):
                unsure.append(job)
            else:
                self._waiting.append(job)
        if unsure:
            self._start(self._look_up(unsure))
        self._begin_waiting()

    async def _look_up(self, jobs: list[Job]) -> None:
        self._waiting.extend(await self._intake.look_up(jobs))
        self._begin_waiting()

    # Beginning.

    def _begin_waiting(self) -> None:
        if self._beginning:
            return  # one has ended as it began: whoever began it goes on
        self._beginning = True
        waiting = self._waiting
        while waiting:
            kind = self._kinds[waiting[0].request.type]
            if len(self._running) >= self._gait.room(kind.ahead):
                break
            self._begin(waiting.popleft(), kind)
        self._beginning = False
        self.figures.waiting = len(waiting)
        if self._running and self._tick is None:
            self._tick = self._loop.call_later(_LOOK_SECONDS, self._look)

    def _begin(self, job: Job, kind: Kind) -> None:
        job.stage = Stage.RUNNING
        job.begun = self._loop.time()
        job.start = datetime.now(UTC)
        self._running[job.id] = job
        self.figures.running = len(self._running)
        self._quiet.clear()
        options = job.envelope.options
        limits = Limits(options.soft or self.settings.soft, options.hard or self.settings.hard)
        try:
            job.attempt = kind.begin(job.request, limits, JobReport(self, job))
        except PenstockError as error:
            self.failed(job, error)

    # What attempts say.

    def told(
        self, job: Job, share: float, finish: datetime | None, results: tuple[Result, ...]
    ) -> None:
        if job.stage is Stage.RUNNING:
            job.share, job.finish, job.results = share, finish or job.finish, results
            job.announced = True
            self._carrier.tell(self._answers.progress(job))

    def done(self, job: Job, outcome: Outcome) -> None:
        seconds = self._loop.time() - job.begun
        self._gait.took(seconds if outcome.seconds is None else outcome.seconds)
        self.figures.took(job.request.type, seconds)
        self.figures.done += 1
        self._answer(job, [self._answers.done(job, outcome)])

    def failed(self, job: Job, error: Exception) -> None:
        if job.stage is not Stage.RUNNING:
            return
        if job.cancelled:
            self._conclude(job, JobState.CANCELLED, _CANCELLED)
            return
        words = sentence(error)
        attempts = job.envelope.options.attempts or self.settings.backoff.attempts
        if lasting(error) or job.envelope.attempt >= attempts:
            self._conclude(job, JobState.FAILED, words)
        else:
            self._retry(job, words)

    def _retry(self, job: Job, error: str) -> None:
        self.figures.retried += 1
        due, milliseconds = self.settings.backoff.pause(job.envelope.attempt)
        log.warning("attempt failed", job=job.id, attempt=job.envelope.attempt, reason=error[:500])
        job.stage = Stage.ANSWERED
        job.messages = [self._answers.progress(job, JobState.RETRYING, error)]
        said = again(job.delivery.said, job.envelope.attempt + 1, milliseconds)
        self._leave(job)
        self._carrier.delay(
            Settlement(job.delivery, job.messages, job),
            Outgoing("", "", job.delivery.body, said),
            due,
        )

    def _conclude(self, job: Job, state: JobState, error: str) -> None:
        """Not well, and for good."""
        messages = [self._answers.failed(job, state, error)]
        if state is JobState.FAILED:
            self.figures.failed += 1
            messages.append(self._answers.dead(job, error))
            log.warning("job failed", job=job.id, reason=error[:500])
        else:
            self.figures.cancelled += 1
        self._answer(job, messages)

    def _answer(self, job: Job, messages: list[Outgoing]) -> None:
        job.stage = Stage.ANSWERED
        job.final = True
        job.messages = messages
        self._leave(job)
        self._carrier.settle(Settlement(job.delivery, messages, job))

    def _leave(self, job: Job) -> None:
        """There is room for another."""
        job.attempt = None
        self._running.pop(job.id, None)
        self.figures.running = len(self._running)
        if not self._running:
            self._quiet.set()
        if (pace := self._gait.change(len(self._running))) is not None and not self._stopping:
            self._carrier.pace(pace)
        if self._waiting:
            self._begin_waiting()

    # What the carrier says.

    def _settled(self, settlements: list[Settlement]) -> None:
        for settlement in settlements:
            if settlement.token is not None:
                self._memory.answered(settlement.token)

    def _lost(self) -> None:
        """What waits is handed out again; what runs goes on, and its request may come again."""
        self.figures.lost += 1
        for job in self._waiting:
            self._memory.drop(job)
        self._waiting.clear()

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
            if job in self._waiting:
                self._waiting.remove(job)
            self._conclude(job, JobState.CANCELLED, _CANCELLED)
        elif job.stage is Stage.RUNNING and job.attempt is not None:
            job.cancelled = True
            job.attempt.end(_CANCELLED)

    # Company.

    def _look(self) -> None:
        """Every now and then: which jobs turn out to be long? That they waited does not count:
        where the machine has too much to do, all wait."""
        self._tick = None
        now = self._loop.time()
        long: list[Job] = []
        for job in self._running.values():
            if job.seen is not None:
                if now - job.seen >= _LONG_SECONDS:
                    long.append(job)
            elif job.attempt is not None and job.attempt.underway:
                job.seen = now
        for job in long:
            if not job.announced:
                job.announced = True
                self._carrier.tell(self._answers.progress(job))
        if long and not self._stopping:
            self._keep_apart(len(long))
        self._begin_waiting()
        if self._running and self._tick is None:
            self._tick = self._loop.call_later(_LOOK_SECONDS, self._look)

    def _keep_apart(self, long: int) -> None:
        """So many take long: others shall not wait behind them."""
        if (pace := self._gait.slow()) is not None:
            self._carrier.pace(pace)
        if len(self._running) > self.settings.slots:
            self._withdraw()
        if long >= self.settings.slots and self._waiting:
            self._make_way()

    def _make_way(self) -> None:
        """All places are taken for long: those that wait may find one elsewhere."""
        for job in self._waiting:
            self._give_back(job)
        self._waiting.clear()
        self._carrier.pace(self._gait.pause())

    def _withdraw(self) -> None:
        """What was begun ahead, and has not really begun, is given back."""
        for job in list(self._running.values()):
            if job.attempt is not None and job.attempt.withdraw():
                self._running.pop(job.id)
                self._give_back(job)
        if not self._running:
            self._quiet.set()

    def _give_back(self, job: Job) -> None:
        self.figures.returned += 1
        self._memory.drop(job)
        self._carrier.give_back(job.delivery)

    def _hand_back(self, job: Job) -> None:
        """End what runs, so that another may do it."""
        job.stage = Stage.ANSWERED
        self._running.pop(job.id, None)
        self._give_back(job)
        if job.attempt is not None:
            job.attempt.end("the worker stops")

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class JobReport:
    """Keeps `penstock.jobs.work.kind.Report` for one job."""

    __slots__ = ("_job", "_worker")

    def __init__(self, worker: Worker, job: Job) -> None:
        self._worker = worker
        self._job = job

    def told(
        self, share: float, finish: datetime | None = None, results: tuple[Result, ...] = ()
    ) -> None:
        self._worker.told(self._job, share, finish, results)

    def done(self, outcome: Outcome) -> None:
        if self._job.stage is Stage.RUNNING:
            self._worker.done(self._job, outcome)

    def failed(self, error: Exception) -> None:
        self._worker.failed(self._job, error)
