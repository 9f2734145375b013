"""The retry policy."""

from __future__ import annotations

import itertools

import pytest

from penstock.core.errors import PenstockError
from penstock.core.retry import RetryPolicy, retry, retry_async


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
    """Time that passes during a sleep."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_transient_error_is_retried() -> None:
    work, clock = Flaky(3, Away("away")), Clock()

    assert retry(work, sleep=clock.sleep, clock=clock) == "done"
    assert work.runs == 4


def test_another_error_is_raised_at_once() -> None:
    work = Flaky(1, Unready("no schema"))

    with pytest.raises(Unready):
        retry(work)
    assert work.runs == 1


def test_retries_end_with_the_total_time() -> None:
    work, clock = Flaky(10_000, Away("away")), Clock()

    with pytest.raises(Away):
        retry(work, RetryPolicy(total=30.0), sleep=clock.sleep, clock=clock)
    assert 20.0 < clock.now <= 30.0


def test_delays_double_up_to_the_longest() -> None:
    delays = RetryPolicy(first=0.1, longest=1.0).delays(random_share=lambda: 1.0)

    assert list(itertools.islice(delays, 6)) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_jitter_spreads_the_delays() -> None:
    earliest = next(RetryPolicy(first=1.0).delays(random_share=lambda: 0.0))
    latest = next(RetryPolicy(first=1.0).delays(random_share=lambda: 1.0))

    assert (earliest, latest) == (0.5, 1.0)


def test_a_sleep_may_give_up_early() -> None:
    class Stopped(Exception):
        pass

    def sleep(seconds: float) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        retry(Flaky(5, Away("away")), sleep=sleep)


def test_a_fixed_delay_has_no_jitter() -> None:
    assert list(itertools.islice(RetryPolicy.fixed(0.5).delays(), 3)) == [0.5, 0.5, 0.5]


def test_the_delay_after_many_failures_is_the_longest() -> None:
    policy = RetryPolicy(first=1.0, longest=600.0, jitter=0.0)

    assert [policy.delay(each) for each in (1, 2, 3, 11, 5000)] == [1.0, 2.0, 4.0, 600.0, 600.0]


def test_attempts_are_limited() -> None:
    work, clock = Flaky(10, Away("away")), Clock()

    with pytest.raises(Away):
        retry(work, RetryPolicy(attempts=3), sleep=clock.sleep, clock=clock)
    assert work.runs == 3


def test_the_caller_decides_which_errors_are_retried() -> None:
    work, clock = Flaky(2, OSError("refused")), Clock()

    found = retry(
        work, None, lambda error: isinstance(error, OSError), sleep=clock.sleep, clock=clock
    )
    assert found == "done"


async def test_a_coroutine_is_retried() -> None:
    work = Flaky(2, Away("away"))

    async def attempt() -> str:
        return work()

    assert await retry_async(attempt, RetryPolicy.fixed(0.0)) == "done"
    assert work.runs == 3


async def test_a_coroutine_is_not_retried_after_the_total_time() -> None:
    async def attempt() -> None:
        raise Away("away")

    with pytest.raises(Away):
        await retry_async(attempt, RetryPolicy.fixed(0.5, total=0.0))
