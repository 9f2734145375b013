"""What a worker takes and gives back, without a broker."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable

import pytest

from penstock.jobs.errors import NotPermitted
from penstock.jobs.model import Request
from penstock.jobs.queue.envelope import AGAIN, final_id
from penstock.jobs.shells.shell import Limits
from penstock.jobs.work.kind import Report
from penstock.jobs.worker import Worker, WorkerSettings
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
    def begin(self, request: Request, limits: Limits, report: Report) -> Lying:
        raise NotPermitted("not here")


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def make_brisk(line: Line, bench: Bench) -> None:
    for number in range(32):
        line.hand(f"quick {number}")
        bench.do(1)
    assert line.paces == [64]


async def test_what_waits_behind_a_long_one_is_given_back(
    worker: Worker, line: Line, bench: Bench
) -> None:
    make_brisk(line, bench)

    given = line.hand(*(f"j{number}" for number in range(10)))
    await until(lambda: len(line.returned) == 9)

    assert line.returned == given[1:]
    assert list(bench.lying) == ["j0"]
    assert line.paces == [64, 1]


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
    assert worker.figures.failed == many
    await worker.close()


async def test_an_answer_that_met_a_break_is_sent_again_with_the_same_id_and_says_so(
    worker: Worker, line: Line, bench: Bench
) -> None:
    line.hand("once")
    bench.do(1)
    (lost,) = line.settled
    line.epoch = 2
    line.listener.lost()
    line.listener.unsettled([lost])

    line.hand("once")

    first, second = (each.messages[0] for each in line.settled)
    assert second.body == first.body
    assert second.said.message_id == first.said.message_id == final_id("once", 1)
    assert [AGAIN in (each.said.headers or {}) for each in (first, second)] == [False, True]
    assert worker.figures.done == 1


async def test_a_request_that_comes_again_before_its_answer_is_known_to_be_lost_is_answered(
    worker: Worker, line: Line, bench: Bench
) -> None:
    line.hand("once")
    bench.do(1)
    (lost,) = line.settled
    line.epoch = 2
    line.listener.lost()

    (again,) = line.hand("once")
    line.listener.unsettled([lost])

    assert line.settled[-1].delivery is again
    assert worker.figures.done == 1
