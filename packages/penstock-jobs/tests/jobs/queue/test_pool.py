"""The pool, with processes that do what a test says instead of real ones."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from penstock_jobs.executors.executor import AttemptListener, JobOutcome
from penstock_jobs.executors.functions import run_in_pool
from penstock_jobs.pool import pool as pools
from penstock_jobs.pool.messages import DONE, PROGRESS, READY, RETURN, RUN
from penstock_jobs.pool.pool import PoolTask, ProcessPool


class Puppet:
    """A process whose answers a test makes."""

    pid = 0

    def __init__(self, heard: Any, gone: Any) -> None:
        self.ready = self.has_long_task = False
        self.task_count = 0
        self.sent: list[tuple[Any, ...]] = []
        self._heard = heard
        self._gone = gone

    async def start(self, master: str = "") -> None:
        self.say(READY, 0)

    def say(self, *item: Any) -> None:
        self._heard(self, item)

    def die(self) -> None:
        self._gone(self)

    def send(self, item: tuple[Any, ...]) -> None:
        self.sent.append(item)

    def send_control(self, verb: str, number: int = 0) -> None:
        self.sent.append((verb, number))

    def end(self) -> None: ...

    async def wait(self) -> None: ...

    @property
    def given(self) -> list[int]:
        return [item[1] for item in self.sent if item[0] == RUN]


@pytest.fixture
async def pool(monkeypatch: pytest.MonkeyPatch) -> ProcessPool:
    monkeypatch.setattr(pools, "PoolProcess", Puppet)
    pool = ProcessPool(1)
    await pool.open()
    return pool


def puppet(pool: ProcessPool) -> Puppet:
    (found,) = pool._processes
    return found  # type: ignore[return-value]


def begun(pool: ProcessPool, number: int) -> tuple[list[PoolTask], list[int]]:
    done: list[int] = []
    pieces = []
    for _ in range(number):
        pool_task = PoolTask("f", (), {}, True, _ignore, _ignore, _ignore, _ignore)
        pool_task.on_done = lambda value, seconds, pool_task=pool_task: done.append(
            pool_task.number
        )  # type: ignore[misc]
        pool.submit(pool_task)
        pieces.append(pool_task)
    return pieces, done


def _ignore(*_: Any) -> None: ...


async def test_a_process_that_gives_back_all_it_had_is_given_work_again(pool: ProcessPool) -> None:
    """It was so slow to begin that it was thought to be at something long."""
    process = puppet(pool)
    begun(pool, 3)
    pool._check_durations({process: 1})  # type: ignore[dict-item]
    assert process.sent[-1][0] == RETURN

    process.say(RETURN, 0, [1, 2, 3])

    assert process.given == [1, 2, 3, 1, 2, 3]


async def test_what_is_given_back_is_done_first_and_in_its_order(pool: ProcessPool) -> None:
    process = puppet(pool)
    _, done = begun(pool, 3)
    pool._check_durations({process: 1})  # type: ignore[dict-item]
    process.say(RETURN, 0, [2, 3])
    begun(pool, 1)
    assert process.given == [1, 2, 3]

    process.say(DONE, 1, None, 0.1)

    assert process.given == [1, 2, 3, 2, 3, 4]
    assert done == [1]


async def test_a_piece_that_was_ended_while_it_waited_there_does_not_leave_it_unused(
    pool: ProcessPool,
) -> None:
    process = puppet(pool)
    pieces, _ = begun(pool, 3)
    pool.terminate(pieces[1], "not wanted")
    process.say(DONE, 1, None, 0.0)
    pool._check_durations({process: 3})  # type: ignore[dict-item]
    process.say(RETURN, 0, [3])  # it is at the second, which nobody wants

    process.say(DONE, 2, None, 9.0)

    assert process.given[-1] == 3
    assert not process.has_long_task


async def test_what_waited_behind_a_piece_whose_process_died_goes_to_the_next_process(
    pool: ProcessPool,
) -> None:
    lost: list[str] = []
    pieces, _ = begun(pool, 3)
    pieces[0].on_lost = lost.append
    puppet(pool).die()

    assert len(lost) == 1
    assert pool.withdraw(pieces[2])
    await asyncio.gather(*pool._tasks)
    assert puppet(pool).given == [2]


async def test_a_process_that_the_system_has_no_room_for_is_started_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[Any] = []

    class Late(Puppet):
        async def start(self, master: str = "") -> None:
            tried.append(self)
            if len(tried) == 1:
                raise BlockingIOError("no room")
            await super().start(master)

    monkeypatch.setattr(pools, "PoolProcess", Late)
    monkeypatch.setattr(pools, "_RESTART_SECONDS", 0.0)
    pool = ProcessPool(1)

    async with asyncio.timeout(60):
        await pool.open()

    assert puppet(pool) is tried[1]


@pytest.mark.parametrize(
    ("share", "finish", "heard"),
    [
        (0.5, 0.0, [(0.5, datetime(1970, 1, 1, tzinfo=UTC))]),
        (1.5, None, [(1.0, None)]),
        (0.5, 1e300, [(0.5, None)]),
        (0.5, "soon", [(0.5, None)]),
        (math.nan, None, []),
    ],
)
async def test_progress_is_heard_as_far_as_it_makes_sense(
    pool: ProcessPool, share: float, finish: Any, heard: list[Any]
) -> None:
    """A function may say anything; its process, and others' results in it, do not suffer."""
    told: list[Any] = []

    class Told:
        def output(self, text: str) -> None: ...

        def progress(self, share: float, finish: datetime | None = None, results: Any = ()) -> None:
            told.append((share, finish))

    run_in_pool(
        pool,
        "f",
        (),
        {},
        cast(AttemptListener, Told()),
        lambda value, seconds: JobOutcome(),
    )

    puppet(pool).say(PROGRESS, 1, share, finish, None)

    assert told == heard


async def test_only_the_first_piece_of_a_process_is_underway(pool: ProcessPool) -> None:
    pieces, _ = begun(pool, 2)
    assert [pool.is_started(pool_task) for pool_task in pieces] == [True, False]

    puppet(pool).say(DONE, 1, None, 0.0)

    assert [pool.is_started(pool_task) for pool_task in pieces] == [False, True]
