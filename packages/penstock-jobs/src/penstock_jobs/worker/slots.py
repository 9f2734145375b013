"""The slots of a worker: which jobs run, which wait for a slot, and the prefetch.

While jobs are short, many are started at once. As soon as one takes long, the jobs prefetched
behind it are withdrawn and requeued, so that idle workers can take them.
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

#: An attempt that takes longer is announced as running, and no short job is queued behind it.
_LONG_SECONDS: Final = 0.25
_CHECK_SECONDS: Final = 0.125


class RateLimit:
    """At most `rate` starts per second, evenly; after a pause up to a second's worth at once."""

    def __init__(self, rate: float) -> None:
        self._interval = 1.0 / rate
        self._burst = max(1.0, self._interval)
        self._next = 0.0

    def delay(self, now: float) -> float:
        """Seconds until the next start."""
        return max(self._next - now, 0.0)

    def take(self, now: float) -> None:
        self._next = max(self._next, now - self._burst + self._interval) + self._interval


class JobSlots:
    def __init__(
        self,
        slots: int,
        executors: Mapping[str, JobExecutor],
        connection: WorkerConnection,
        metrics: WorkerMetrics,
        *,
        start: Callable[[WorkerJob, JobExecutor], None],
        requeue: Callable[[WorkerJob], None],
        on_long: Callable[[WorkerJob, float], None],
        rates: Mapping[str, float] | None = None,
    ) -> None:
        """`start` may finish a job at once; `on_long` is called repeatedly for a long attempt, with
        its seconds."""
        self._slots = slots
        self._limits = {kind: RateLimit(rate) for kind, rate in (rates or {}).items()}
        self._executors = executors
        self._connection = connection
        self._metrics = metrics
        self._start = start
        self._requeue = requeue
        self._on_long = on_long
        self._prefetch = PrefetchController(slots)
        self._waiting: deque[WorkerJob] = deque()
        self._running: dict[str, WorkerJob] = {}
        self._starting = False
        self._stopping = False
        self._last_change = 0.0  # when a job ended, or the first one started
        self._timer: asyncio.TimerHandle | None = None
        self._limit_timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def running(self) -> list[WorkerJob]:
        return list(self._running.values())

    async def wait_idle(self) -> None:
        await self._idle.wait()

    def enqueue(self, job: WorkerJob) -> None:
        self._waiting.append(job)

    def start_waiting(self) -> None:
        """Start waiting jobs in free slots; a stopping worker requeues them."""
        if self._stopping:
            self._requeue_waiting()
        if self._starting:
            return  # a job finished as it was started: the loop below goes on
        self._starting = True
        waiting = self._waiting
        if waiting and not self._running:
            self._last_change = asyncio.get_running_loop().time()
        while waiting:
            at = self._next_permitted() if self._limits else 0
            if at is None:
                break
            executor = self._executors[waiting[at].request.type]
            if len(self._running) >= self._prefetch.capacity(executor.can_prefetch):
                break
            job = waiting[at]
            del waiting[at]
            if (limit := self._limits.get(job.request.type)) is not None:
                limit.take(asyncio.get_running_loop().time())
            self._running[job.id] = job
            self._idle.clear()
            self._start(job, executor)
        self._starting = False
        self._metrics.waiting = len(waiting)
        self._metrics.running = len(self._running)
        if self._running and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_CHECK_SECONDS, self._check_durations, loop)

    def _next_permitted(self) -> int | None:
        """The first waiting job whose type may start now; otherwise it is tried again later."""
        loop = asyncio.get_running_loop()
        soonest = _CHECK_SECONDS
        for at, job in enumerate(self._waiting):
            limit = self._limits.get(job.request.type)
            delay = 0.0 if limit is None else limit.delay(loop.time())
            if delay <= 0:
                return at
            soonest = min(soonest, delay)
        if self._limit_timer is None:
            self._limit_timer = loop.call_later(soonest, self._retry_limited)
        return None

    def _retry_limited(self) -> None:
        self._limit_timer = None
        self.start_waiting()

    def record(self, seconds: float) -> None:
        """The duration of a successful attempt."""
        self._prefetch.record(seconds)

    def finish(self, job: WorkerJob) -> None:
        """Release the slot and start the next job."""
        self.release(job)
        self._last_change = asyncio.get_running_loop().time()
        prefetch = self._prefetch.update(len(self._running))
        if prefetch is not None and not self._stopping:
            self._connection.set_prefetch(prefetch)
        if self._waiting:
            self.start_waiting()

    def release(self, job: WorkerJob) -> None:
        self._running.pop(job.id, None)
        self._metrics.running = len(self._running)
        if not self._running:
            self._idle.set()

    def remove_waiting(self, job: WorkerJob) -> None:
        if job in self._waiting:
            self._waiting.remove(job)

    def clear_waiting(self) -> list[WorkerJob]:
        cleared = list(self._waiting)
        self._waiting.clear()
        return cleared

    def stop(self) -> None:
        """Start no more jobs; those that run continue."""
        self._stopping = True
        self._connection.set_prefetch(0)
        self._requeue_waiting()
        self._withdraw()

    def close(self) -> None:
        for timer in (self._timer, self._limit_timer):
            if timer is not None:
                timer.cancel()

    def _check_durations(self, loop: asyncio.AbstractEventLoop) -> None:
        """Find long attempts. Time spent waiting does not count: on a busy machine all wait."""
        self._timer = None
        now = loop.time()
        long: list[WorkerJob] = []
        for job in self._running.values():
            if job.observed_since is not None:
                if now - job.observed_since >= _LONG_SECONDS:
                    long.append(job)
            elif job.attempt is not None and job.attempt.is_started:
                job.observed_since = now
        for job in long:
            assert job.observed_since is not None
            self._on_long(job, now - job.observed_since)
        if long and not self._stopping:
            self._isolate(len(long))
        self.start_waiting()

    def _isolate(self, long: int) -> None:
        """So many attempts are long: no job waits behind them."""
        if (prefetch := self._prefetch.reset()) is not None:
            self._connection.set_prefetch(prefetch)
        if len(self._running) > self._slots:
            self._withdraw()
        if long >= self._slots and self._waiting and not self._is_next_soon():
            self._requeue_waiting()
            self._connection.set_prefetch(self._prefetch.pause())

    def _is_next_soon(self) -> bool:
        """Whether the jobs that wait will have a slot in a moment."""
        since = asyncio.get_running_loop().time() - self._last_change
        return self._prefetch.is_doubled and since < _NEXT_SECONDS

    def _requeue_waiting(self) -> None:
        for job in self.clear_waiting():
            self._requeue(job)

    def _withdraw(self) -> None:
        """Requeue prefetched jobs that have not really started."""
        for job in self.running:
            if job.attempt is not None and job.attempt.withdraw():
                self.release(job)
                self._requeue(job)


#: Jobs shorter than this are prefetched…
_SHORT_SECONDS: Final = 0.002
#: … after so many of them in a row.
_SHORT_JOBS: Final = 32
#: The aim for each slot, in seconds of work and in jobs.
_PREFETCH_SECONDS: Final = 0.1
_MIN_PREFETCH: Final = 64
_MAX_PREFETCH: Final = 1024
#: With so many slots one is soon free, so the next jobs are prefetched…
_MANY_SLOTS: Final = 32
#: … while jobs take less than this on average, in seconds.
_NEXT_SECONDS: Final = 2.0


def first_prefetch(slots: int) -> int:
    return 2 * slots if slots >= _MANY_SLOTS else slots


class PrefetchController:
    """The prefetch, by the duration of jobs.

    It begins with the number of slots, because other workers cannot take what this one holds. While
    most jobs are short it doubles up to about a tenth of a second of work: then a round trip per
    job would take longer than the job. The first long job resets it. With many slots it is twice
    their number while jobs take up to two seconds: the next job of each slot is there already.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._current = first_prefetch(slots)  # as set on the connection
        self._short = 0  # in a row
        self._done = 0  # since the last change
        self._mean = 0.0  # seconds
        self._per_slot = 0
        self.is_prefetching = False

    def capacity(self, can_prefetch: bool) -> int:
        """How many jobs may be started on an executor that can or cannot prefetch."""
        prefetching = self.is_prefetching and can_prefetch
        return self._slots * self._per_slot if prefetching else self._slots

    @property
    def is_doubled(self) -> bool:
        """Whether the next job of each slot is prefetched."""
        return not self.is_prefetching and self._current > self._slots

    def record(self, seconds: float) -> None:
        self._short = self._short + 1 if seconds < _SHORT_SECONDS else 0
        self._done += 1
        self._mean += (seconds - self._mean) / _SHORT_JOBS

    def update(self, running: int) -> int | None:
        """The new prefetch after a job has finished, if it changes."""
        if not self.is_prefetching:
            if self._short >= _SHORT_JOBS:
                self.is_prefetching = True
                return self._raise(_MIN_PREFETCH)
            if self._slots >= _MANY_SLOTS and self._done >= self._slots and self._current:
                wanted = first_prefetch(self._slots) if self._mean < _NEXT_SECONDS else self._slots
                return self._set(wanted) if wanted != self._current else None
        elif self._done >= self._current and self._per_slot < self._limit:
            return self._raise(min(2 * self._per_slot, self._limit))
        if self._current == 0 and running < self._slots:
            return self._set(self._slots)
        return None

    def reset(self) -> int | None:
        """The new prefetch after a long job, if it changes."""
        self._short = 0
        if not self.is_prefetching:
            return None
        self.is_prefetching = False
        return self._set(self._slots)

    def pause(self) -> int:
        return self._set(0)

    @property
    def _limit(self) -> int:
        wanted = int(_PREFETCH_SECONDS / max(self._mean, 1e-6))
        return min(max(wanted, _MIN_PREFETCH), _MAX_PREFETCH)

    def _raise(self, per_slot: int) -> int:
        self._done = 0
        self._per_slot = per_slot
        return self._set(self._slots * per_slot)

    def _set(self, prefetch: int) -> int:
        self._current = prefetch
        return prefetch
