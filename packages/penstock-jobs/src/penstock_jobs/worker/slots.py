"""The places of a worker: which jobs run, which wait for one, and how many requests to take.

While jobs are short they are begun many at a time; as soon as one is not, what was begun ahead of
its turn is called back, and what waits behind it is given back, so that others who are free can
have it. What it is to begin a job, and to give one back, is the worker's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from penstock_jobs.executors.executor import JobExecutor
from penstock_jobs.queue.worker_connection import WorkerConnection
from penstock_jobs.worker.job import WorkerJob
from penstock_jobs.worker.metrics import WorkerMetrics

#: One that takes longer is announced as running, and is not kept company by short ones.
_LONG_SECONDS: Final = 0.25
_CHECK_SECONDS: Final = 0.125


class JobSlots:
    def __init__(
        self,
        slots: int,
        kinds: Mapping[str, JobExecutor],
        worker_connection: WorkerConnection,
        worker_metrics: WorkerMetrics,
        *,
        begin: Callable[[WorkerJob, JobExecutor], None],
        give_back: Callable[[WorkerJob], None],
        long: Callable[[WorkerJob], None],
    ) -> None:
        """`begin` may end a job at once; `long` is told of those that turn out to be."""
        self._slots = slots
        self._kinds = kinds
        self._worker_connection = worker_connection
        self._worker_metrics = worker_metrics
        self._begin = begin
        self._give_back = give_back
        self._long = long
        self._prefetch_controller = PrefetchController(slots)
        self._waiting: deque[WorkerJob] = deque()
        self._running: dict[str, WorkerJob] = {}
        self._filling = False
        self._stopping = False
        self._tick: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def running(self) -> list[WorkerJob]:
        return list(self._running.values())

    async def empty(self) -> None:
        """Returns when nothing runs."""
        await self._empty.wait()

    # Coming.

    def queue(self, job: WorkerJob) -> None:
        self._waiting.append(job)

    def fill(self) -> None:
        """Begin what waits, as far as there is room; it is given back by one that stops."""
        if self._stopping:
            self._give_all_back()
        if self._filling:
            return  # one has ended as it began: whoever began it goes on
        self._filling = True
        waiting = self._waiting
        while waiting:
            kind = self._kinds[waiting[0].request.type]
            if len(self._running) >= self._prefetch_controller.room(kind.ahead):
                break
            job = waiting.popleft()
            self._running[job.id] = job
            self._empty.clear()
            self._begin(job, kind)
        self._filling = False
        self._worker_metrics.waiting = len(waiting)
        self._worker_metrics.running = len(self._running)
        self._look_later()

    # Going.

    def took(self, seconds: float) -> None:
        """So long was one at work that has ended well."""
        self._prefetch_controller.took(seconds)

    def leave(self, job: WorkerJob) -> None:
        """It has ended: there is room for another."""
        self.vacate(job)
        if (
            pace := self._prefetch_controller.change(len(self._running))
        ) is not None and not self._stopping:
            self._worker_connection.pace(pace)
        if self._waiting:
            self.fill()

    def vacate(self, job: WorkerJob) -> None:
        """It is not here any more, and nothing is to follow it for that."""
        self._running.pop(job.id, None)
        self._worker_metrics.running = len(self._running)
        if not self._running:
            self._empty.set()

    def skip(self, job: WorkerJob) -> None:
        """It need not wait any more."""
        if job in self._waiting:
            self._waiting.remove(job)

    def forget_waiting(self) -> list[WorkerJob]:
        """They are nobody's here any more."""
        forgotten = list(self._waiting)
        self._waiting.clear()
        return forgotten

    def stop(self) -> None:
        """Nothing more is begun; what has begun goes on."""
        self._stopping = True
        self._worker_connection.pace(0)
        self._give_all_back()
        self._withdraw()

    def close(self) -> None:
        if self._tick is not None:
            self._tick.cancel()

    # Company.

    def _look_later(self) -> None:
        if self._running and self._tick is None:
            loop = asyncio.get_running_loop()
            self._tick = loop.call_later(_CHECK_SECONDS, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Every now and then: which jobs turn out to be long? That they waited does not count:
        where the machine has too much to do, all wait."""
        self._tick = None
        now = loop.time()
        long: list[WorkerJob] = []
        for job in self._running.values():
            if job.seen is not None:
                if now - job.seen >= _LONG_SECONDS:
                    long.append(job)
            elif job.attempt is not None and job.attempt.underway:
                job.seen = now
        for job in long:
            self._long(job)
        if long and not self._stopping:
            self._keep_apart(len(long))
        self.fill()

    def _keep_apart(self, long: int) -> None:
        """So many take long: others shall not wait behind them."""
        if (pace := self._prefetch_controller.slow()) is not None:
            self._worker_connection.pace(pace)
        if len(self._running) > self._slots:
            self._withdraw()
        if long >= self._slots and self._waiting:
            self._give_all_back()
            self._worker_connection.pace(self._prefetch_controller.pause())

    def _give_all_back(self) -> None:
        """What waits may find a place elsewhere."""
        for job in self.forget_waiting():
            self._give_back(job)

    def _withdraw(self) -> None:
        """What was begun ahead, and has not really begun, is given back."""
        for job in self.running:
            if job.attempt is not None and job.attempt.withdraw():
                self.vacate(job)
                self._give_back(job)


# How many requests to take at a time, by how long jobs take.
#
# To begin with as many as there are places: what one worker holds back another cannot do. When jobs
# are seen to be over in a moment, more, because then asking for each would take longer than doing
# it; and as long as most stay short, twice as many again, up to about what is done in a tenth of a
# second. As soon as one takes long, no more than there are places again.

#: Jobs that are over sooner than this can be taken many at a time…
_SHORT_SECONDS: Final = 0.002
#: … after so many of them, one after the other.
_SHORT_JOBS: Final = 32
#: Of what is taken ahead: about so much work for each place, and so many jobs.
_AHEAD_SECONDS: Final = 0.1
_MIN_AHEAD: Final = 64
_MAX_AHEAD: Final = 1024


class PrefetchController:
    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._pace = slots  # what the carrier was told
        self._short = 0  # one after the other
        self._done = 0  # since the last change
        self._mean = 0.0  # of the short ones, in seconds
        self._ahead = 0  # for each place, while brisk
        self.is_prefetching = False

    def room(self, ahead: bool) -> int:
        """How many may be begun, of a kind that can or cannot be given some ahead."""
        return self._slots * self._ahead if self.is_prefetching and ahead else self._slots

    def took(self, seconds: float) -> None:
        self._short = self._short + 1 if seconds < _SHORT_SECONDS else 0
        self._done += 1
        self._mean += (seconds - self._mean) / _SHORT_JOBS

    def change(self, running: int) -> int | None:
        """The pace to tell the carrier, if it is another now that one has ended."""
        if not self.is_prefetching:
            if self._short >= _SHORT_JOBS:
                self.is_prefetching = True
                return self._take_ahead(_MIN_AHEAD)
        elif self._done >= self._pace and self._ahead < self._most:
            return self._take_ahead(min(2 * self._ahead, self._most))
        if self._pace == 0 and running < self._slots:
            return self._set(self._slots)
        return None

    def slow(self) -> int | None:
        """One takes long: the pace to tell the carrier, if it is another."""
        self._short = 0
        if not self.is_prefetching:
            return None
        self.is_prefetching = False
        return self._set(self._slots)

    def pause(self) -> int:
        return self._set(0)

    @property
    def _most(self) -> int:
        wanted = int(_AHEAD_SECONDS / max(self._mean, 1e-6))
        return min(max(wanted, _MIN_AHEAD), _MAX_AHEAD)

    def _take_ahead(self, jobs: int) -> int:
        self._done = 0
        self._ahead = jobs
        return self._set(self._slots * jobs)

    def _set(self, pace: int) -> int:
        self._pace = pace
        return pace
