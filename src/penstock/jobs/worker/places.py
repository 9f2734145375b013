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

from penstock.jobs.queue.carrier import Carrier
from penstock.jobs.work.kind import Kind
from penstock.jobs.worker.figures import Figures
from penstock.jobs.worker.gait import Gait
from penstock.jobs.worker.job import Job

#: One that takes longer is announced as running, and is not kept company by short ones.
_LONG_SECONDS: Final = 0.25
_LOOK_SECONDS: Final = 0.125


class Places:
    def __init__(
        self,
        slots: int,
        kinds: Mapping[str, Kind],
        carrier: Carrier,
        figures: Figures,
        *,
        begin: Callable[[Job, Kind], None],
        give_back: Callable[[Job], None],
        long: Callable[[Job], None],
    ) -> None:
        """`begin` may end a job at once; `long` is told of those that turn out to be."""
        self._slots = slots
        self._kinds = kinds
        self._carrier = carrier
        self._figures = figures
        self._begin = begin
        self._give_back = give_back
        self._long = long
        self._gait = Gait(slots)
        self._waiting: deque[Job] = deque()
        self._running: dict[str, Job] = {}
        self._filling = False
        self._stopping = False
        self._tick: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def running(self) -> list[Job]:
        return list(self._running.values())

    async def empty(self) -> None:
        """Returns when nothing runs."""
        await self._empty.wait()

    # Coming.

    def queue(self, job: Job) -> None:
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
            if len(self._running) >= self._gait.room(kind.ahead):
                break
            job = waiting.popleft()
            self._running[job.id] = job
            self._empty.clear()
            self._begin(job, kind)
        self._filling = False
        self._figures.waiting = len(waiting)
        self._figures.running = len(self._running)
        self._look_later()

    # Going.

    def took(self, seconds: float) -> None:
        """So long was one at work that has ended well."""
        self._gait.took(seconds)

    def leave(self, job: Job) -> None:
        """It has ended: there is room for another."""
        self.vacate(job)
        if (pace := self._gait.change(len(self._running))) is not None and not self._stopping:
            self._carrier.pace(pace)
        if self._waiting:
            self.fill()

    def vacate(self, job: Job) -> None:
        """It is not here any more, and nothing is to follow it for that."""
        self._running.pop(job.id, None)
        self._figures.running = len(self._running)
        if not self._running:
            self._empty.set()

    def skip(self, job: Job) -> None:
        """It need not wait any more."""
        if job in self._waiting:
            self._waiting.remove(job)

    def forget_waiting(self) -> list[Job]:
        """They are nobody's here any more."""
        forgotten = list(self._waiting)
        self._waiting.clear()
        return forgotten

    def stop(self) -> None:
        """Nothing more is begun; what has begun goes on."""
        self._stopping = True
        self._carrier.pace(0)
        self._give_all_back()
        self._withdraw()

    def close(self) -> None:
        if self._tick is not None:
            self._tick.cancel()

    # Company.

    def _look_later(self) -> None:
        if self._running and self._tick is None:
            loop = asyncio.get_running_loop()
            self._tick = loop.call_later(_LOOK_SECONDS, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Every now and then: which jobs turn out to be long? That they waited does not count:
        where the machine has too much to do, all wait."""
        self._tick = None
        now = loop.time()
        long: list[Job] = []
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
        if (pace := self._gait.slow()) is not None:
            self._carrier.pace(pace)
        if len(self._running) > self._slots:
            self._withdraw()
        if long >= self._slots and self._waiting:
            self._give_all_back()
            self._carrier.pace(self._gait.pause())

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
