"""What a worker knows of ids: which it is at, and which it has answered not long ago."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from penstock.jobs.queue.wishes import Wish
from penstock.jobs.worker.job import Job, Past, Stage

#: Answers that are remembered: long enough for a copy that was sent twice to come by.
_PAST: Final = 10_000
#: Answers that may not have arrived, kept in case their requests come again.
_UNSURE: Final = 10_000
#: Wishes to cancel what did not come by yet.
_WISHES: Final = 100_000


class Meeting(Enum):
    """What a request is to one with the same id."""

    NEW = 0
    AGAIN = 1  #: handed out again: the same request, whose delivery was lost
    COPY = 2  #: the same request once more: one answer serves both
    OTHER = 3  #: another request, with an id that is taken
    ELSEWHERE = 4  #: the same request, which another worker is at


class Memory:
    def __init__(self, dropped: Callable[[Job], None] = lambda _: None) -> None:
        """`dropped` hears of those that somebody else may have."""
        self._dropped = dropped
        self.jobs: dict[str, Job] = {}
        self._past: dict[str, Past] = {}
        self._unsure: dict[str, Job] = {}
        self._wishes: dict[str, Wish] = {}

    def meet(self, job: Job, epoch: int) -> Meeting:
        there = self.jobs.get(job.id)
        if there is not None:
            if there.stage is Stage.ANSWERED and _later(job, there):
                return Meeting.NEW  # the word that its answer is safe is still on its way
            if there.digest != job.digest or there.envelope.run != job.envelope.run:
                return Meeting.OTHER
            lost = there.delivery.epoch != epoch or there.stage is Stage.UNSURE
            return Meeting.AGAIN if lost else Meeting.COPY
        past = self._past.get(job.id)
        if past is None or job.envelope.run > past.run:
            return Meeting.NEW
        return Meeting.COPY if past.digest == job.digest else Meeting.OTHER

    def keep(self, job: Job) -> None:
        self.jobs[job.id] = job

    def drop(self, job: Job) -> None:
        """It is not ours any more."""
        self._dropped(job)
        if self.jobs.get(job.id) is job:
            del self.jobs[job.id]
        if self._unsure:
            self._unsure.pop(job.id, None)

    def unsure(self, job: Job) -> None:
        """The connection went before it was known whether its answer is safe.

        The oldest of too many is forgotten: if its request comes again it was not safe, and is
        done again."""
        job.stage = Stage.UNSURE
        self._dropped(job)  # its request may come to another, who is not to wait for us
        self._unsure[job.id] = job
        if len(self._unsure) > _UNSURE:
            self.drop(self._unsure[next(iter(self._unsure))])

    def answered(self, job: Job) -> None:
        """Its answer is safe."""
        self.drop(job)
        if job.final:
            self._past[job.id] = Past(job.envelope.run, job.digest)
            if len(self._past) > _PAST:
                del self._past[next(iter(self._past))]

    def wish(self, wish: Wish) -> None:
        self._wishes.pop(wish.cancel, None)
        self._wishes[wish.cancel] = wish
        if len(self._wishes) > _WISHES:
            del self._wishes[next(iter(self._wishes))]

    def unwanted(self, job: Job) -> bool:
        """Whether somebody wished it cancelled."""
        if not self._wishes or (wish := self._wishes.get(job.id)) is None:
            return False
        return wish.holds(job.envelope.run, job.envelope.submitted)


def _later(job: Job, there: Job) -> bool:
    """Whether it is the next attempt, or was asked for again."""
    next_, last = job.envelope, there.envelope
    return (next_.run, next_.attempt) > (last.run, last.attempt)
