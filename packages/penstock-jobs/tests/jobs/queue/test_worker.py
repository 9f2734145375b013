"""What a worker takes and gives back, without a broker."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import cast

import pytest

from penstock.core.errors import AccessRefused
from penstock_jobs.errors import WorkNotPermitted
from penstock_jobs.executors.executor import AttemptListener
from penstock_jobs.model import JobRequest
from penstock_jobs.queue.properties import REPEATED, final_message_id
from penstock_jobs.queue.worker_connection import WorkerListener
from penstock_jobs.worker import Worker, WorkerSettings
from penstock_jobs.worker.history_check import HistoryCheck
from penstock_jobs.worker.job import RequestMatch, WorkerJob
from tests.jobs.queue.line import Bench, Line, Lying


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
async def worker(line: Line, bench: Bench) -> AsyncIterator[Worker]:
    worker = Worker(line, [bench], WorkerSettings(slots=1))
    await worker.open()
    yield worker
    await worker.close()


class Strict(Bench):
    def start(self, request: JobRequest, listener: AttemptListener) -> Lying:
        raise WorkNotPermitted("not here")


class Mistaken(Bench):
    """Fails at one in a way nobody thought of."""

    def start(self, request: JobRequest, listener: AttemptListener) -> Lying:
        if request.id == "bad":
            raise ValueError("nobody thought of that")
        return super().start(request, listener)


class Slow:
    """A history that is asked about some, and answers when it is let."""

    def __init__(self) -> None:
        self.asked, self.allowed = asyncio.Event(), asyncio.Event()

    def concerns(self, job: WorkerJob) -> bool:
        return job.id == "doubtful"

    async def check(self, jobs: Sequence[WorkerJob]) -> dict[str, RequestMatch]:
        self.asked.set()
        await self.allowed.wait()
        return {}

    def release(self, job: WorkerJob) -> None: ...

    async def close(self) -> None: ...


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def make_brisk(line: Line, bench: Bench) -> None:
    for number in range(32):
        line.hand(f"quick {number}")
        bench.do(1)
    assert line.prefetches == [64]


async def test_what_waits_behind_a_long_one_is_given_back(
    worker: Worker, line: Line, bench: Bench
) -> None:
    make_brisk(line, bench)

    given = line.hand(*(f"j{number}" for number in range(10)))
    await until(lambda: len(line.returned) == 9)

    assert line.returned == given[1:]
    assert list(bench.lying) == ["j0"]
    assert line.prefetches == [64, 1]


async def test_that_all_wait_because_the_machine_is_busy_gives_nothing_back(
    worker: Worker, line: Line, bench: Bench
) -> None:
    make_brisk(line, bench)

    line.hand(*(f"j{number}" for number in range(12)))
    while bench.lying:  # each sooner than long, all together much later
        await asyncio.sleep(0.05)
        bench.do(1)

    assert line.returned == []
    assert len(line.settled) == 32 + 12


async def test_many_that_may_not_be_begun_are_all_answered(line: Line) -> None:
    worker = Worker(line, [Strict()], WorkerSettings(slots=1))
    await worker.open()
    many = sys.getrecursionlimit() + 100  # each ends as it begins, and lets the next one begin
    line.hand(*(f"j{number}" for number in range(many)))

    assert len(line.settled) == many
    assert worker.metrics.failed == many
    await worker.close()


async def test_one_that_cannot_be_begun_for_a_mistake_is_tried_again_and_others_are_begun(
    line: Line,
) -> None:
    bench = Mistaken()
    worker = Worker(line, [bench], WorkerSettings(slots=2))
    await worker.open()

    line.hand("bad", "good")

    assert list(bench.lying) == ["good"]
    assert worker.metrics.retried == 1
    await worker.close()


async def test_a_worker_that_is_not_let_in_leaves_nothing_open() -> None:
    closed: list[Bench] = []

    class Refused(Line):
        async def open(self, listener: WorkerListener) -> None:
            raise AccessRefused("not you")

    class Closing(Bench):
        async def close(self) -> None:
            closed.append(self)

    kinds = [Closing(), Closing()]
    with pytest.raises(AccessRefused):
        await Worker(Refused(), kinds).open()

    assert closed == kinds[::-1]


async def test_what_the_history_was_asked_about_is_not_begun_by_a_worker_that_stops(
    line: Line, bench: Bench
) -> None:
    history = Slow()
    worker = Worker(line, [bench], WorkerSettings(slots=2), cast(HistoryCheck, history))
    await worker.open()
    line.hand("running")
    (doubtful,) = line.hand("doubtful")
    await history.asked.wait()

    closing = asyncio.create_task(worker.close(None))
    await until(lambda: line.prefetches[-1:] == [0])
    history.allowed.set()
    await until(lambda: line.returned == [doubtful])

    assert list(bench.lying) == ["running"]
    bench.do(1)
    await closing


async def test_an_answer_that_met_a_break_is_sent_again_with_the_same_id_and_says_so(
    worker: Worker, line: Line, bench: Bench
) -> None:
    line.hand("once")
    bench.do(1)
    (lost,) = line.settled
    line.epoch = 2
    line.listener.connection_lost()
    line.listener.unconfirmed([lost])

    line.hand("once")

    first, second = (each.messages[0] for each in line.settled)
    assert second.body == first.body
    assert (
        second.properties.message_id == first.properties.message_id == final_message_id("once", 1)
    )
    assert [REPEATED in (each.properties.headers or {}) for each in (first, second)] == [
        False,
        True,
    ]
    assert worker.metrics.done == 1


async def test_of_a_request_and_its_copy_one_is_held_until_the_answer_is_safe(
    worker: Worker, line: Line, bench: Bench
) -> None:
    """Over AMQP 1.0 the copy may be the request itself, handed out again: the first is nobody's."""
    (first,) = line.hand("once")
    (second,) = line.hand("once")
    assert [(each.delivery, len(each.messages)) for each in line.settled] == [(first, 0)]

    bench.do(1)

    answer = line.settled[-1]
    assert (answer.delivery, len(answer.messages)) == (second, 1)
    assert (worker.metrics.done, worker.metrics.copies) == (1, 1)


async def test_a_copy_that_comes_while_the_answer_is_on_its_way_goes_after_it(
    worker: Worker, line: Line, bench: Bench
) -> None:
    line.hand("once")
    bench.do(1)
    (answer,) = line.settled
    (copy,) = line.hand("once")
    assert line.settled == [answer]

    line.listener.settled([answer])

    assert (line.settled[-1].delivery, line.settled[-1].messages) == (copy, ())
    assert worker.metrics.done == 1


async def test_a_request_that_comes_again_before_its_answer_is_known_to_be_lost_is_answered(
    worker: Worker, line: Line, bench: Bench
) -> None:
    line.hand("once")
    bench.do(1)
    (lost,) = line.settled
    line.epoch = 2
    line.listener.connection_lost()

    (again,) = line.hand("once")
    line.listener.unconfirmed([lost])

    assert line.settled[-1].delivery is again
    assert worker.metrics.done == 1
