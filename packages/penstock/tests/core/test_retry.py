"""The retry policy."""

from __future__ import annotations

import itertools

import pytest

from penstock.core.errors import PenstockError
from penstock.core.retry import RetryPolicy, retry


class Away(PenstockError):
    transient = True


class Unready(PenstockError):
    pass


class Flaky:
    """Fails some times, then succeeds."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.runs = 0
        self._failures = failures
        self._error = error

    def __call__(self) -> str:
        self.runs += 1
        if self.runs <= self._failures:
            raise self._error
        return "done"


class Clock:
    """Time that passes when somebody pauses."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_passing_fault_is_tried_again() -> None:
    work, clock = Flaky(3, Away("away")), Clock()

    assert retry(work, sleep=clock.sleep, clock=clock) == "done"
    assert work.runs == 4


def test_a_fault_that_stays_is_raised_at_once() -> None:
    work = Flaky(1, Unready("no schema"))

    with pytest.raises(Unready):
        retry(work)
    assert work.runs == 1


def test_patience_ends() -> None:
    work, clock = Flaky(10_000, Away("away")), Clock()

    with pytest.raises(Away):
        retry(work, RetryPolicy(total=30.0), sleep=clock.sleep, clock=clock)
    assert 20.0 < clock.now <= 30.0


def test_pauses_double_up_to_the_longest() -> None:
    pauses = RetryPolicy(first=0.1, longest=1.0).delays(random_share=lambda: 1.0)

    assert list(itertools.islice(pauses, 6)) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_those_who_wait_do_not_all_come_at_once() -> None:
    earliest = next(RetryPolicy(first=1.0).delays(random_share=lambda: 0.0))
    latest = next(RetryPolicy(first=1.0).delays(random_share=lambda: 1.0))

    assert (earliest, latest) == (0.5, 1.0)


def test_a_pause_may_give_up_early() -> None:
    class Stopped(Exception):
        pass

    def pause(seconds: float) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        retry(Flaky(5, Away("away")), sleep=pause)
