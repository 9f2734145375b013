"""A process of the pool: what it takes, gives back, is asked to end, and leaves behind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock_jobs.pool.messages import DONE, FAILED, INTERRUPT, PROGRESS, READY, RETURN, RUN
from penstock_jobs.pool.pool import PoolProcess
from tests.integration.jobs import functions as samples
from tests.jobs.queue import functions

LONG = f"{samples.__name__}:take"
SHORT = f"{samples.__name__}:add"
OURS = functions.__name__


class Heard:
    """What a process says, and that it has gone."""

    def __init__(self) -> None:
        self._said: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        self.gone = asyncio.Event()
        self.process = PoolProcess(
            lambda _, item: self._said.put_nowait(item), lambda _: self.gone.set()
        )

    async def next(self, *verbs: str) -> tuple[Any, ...]:
        """The next of these."""
        async with asyncio.timeout(60):
            while (item := await self._said.get())[0] not in verbs:
                pass
        return item

    def give(self, number: int, function: str, *arguments: object, own_only: bool = True) -> None:
        self.process.send((RUN, number, function, arguments, {}, True, own_only))


@pytest.fixture
async def child() -> AsyncIterator[Heard]:
    heard = Heard()
    await heard.process.start()
    await heard.next(READY)
    yield heard
    heard.process.end()
    await heard.process.wait()


async def test_what_comes_while_it_is_at_work_is_given_back_in_order(child: Heard) -> None:
    child.give(1, LONG, 600.0)
    await child.next(PROGRESS)
    for number in (2, 3, 4):
        child.give(number, SHORT, 1, 1)
        await asyncio.sleep(0)  # each by a write of its own
    await asyncio.sleep(0)

    child.process.send_control(RETURN)

    assert await child.next(RETURN) == (RETURN, 0, [2, 3, 4])


async def test_one_with_nothing_to_do_gives_back_nothing_and_goes_on(child: Heard) -> None:
    child.process.send_control(RETURN)
    assert await child.next(RETURN) == (RETURN, 0, [])

    child.give(1, SHORT, 2, 3)
    child.give(2, SHORT, 3, 4)

    assert (await child.next(DONE))[:3] == (DONE, 1, "5")
    assert (await child.next(DONE))[:3] == (DONE, 2, "7")


async def test_it_is_asked_to_end_what_it_is_at_and_does_the_next(child: Heard) -> None:
    child.give(1, LONG, 600.0)
    child.give(2, SHORT, 1, 1)
    await child.next(PROGRESS)

    child.process.send_control(INTERRUPT, 1)

    assert (await child.next(FAILED))[:3] == (FAILED, 1, "JobTimeout")
    assert (await child.next(DONE))[1] == 2


async def test_it_is_asked_to_end_although_the_progress_of_another_was_told(child: Heard) -> None:
    child.give(1, f"{OURS}:keep")
    child.give(2, f"{OURS}:tell_kept", 600.0)
    await child.next(PROGRESS)

    child.process.send_control(INTERRUPT, 2)

    assert (await child.next(FAILED))[:3] == (FAILED, 2, "JobTimeout")


@pytest.mark.parametrize(("name", "value"), [("plain", '"plain"'), ("Bound.method", '"method"')])
async def test_a_function_of_a_module_is_called(child: Heard, name: str, value: str) -> None:
    child.give(1, f"{OURS}:{name}")
    assert (await child.next(DONE, FAILED))[:3] == (DONE, 1, value)


@pytest.mark.parametrize(
    "name", ["time.sleep", "imported", "plain.__globals__.clear", "_KEPT.clear", "nothing", ""]
)
async def test_what_a_module_has_from_others_or_for_itself_is_not_called(
    child: Heard, name: str
) -> None:
    child.give(1, f"{OURS}:{name}")
    verb, _, kind, _, again = await child.next(DONE, FAILED)
    assert (verb, kind, again) == (FAILED, "JobFormatError", False)


async def test_what_was_permitted_by_its_name_may_be_from_another_module(child: Heard) -> None:
    child.give(1, "operator:add", 2, 3, own_only=False)
    assert (await child.next(DONE, FAILED))[:3] == (DONE, 1, "5")


async def test_it_ends_with_its_worker_whatever_it_is_at() -> None:
    heard = Heard()
    await heard.process.start()
    await heard.next(READY)
    heard.give(1, LONG, 600.0)
    await heard.next(PROGRESS)
    pid = heard.process.pid

    assert heard.process._transport is not None
    assert heard.process._control is not None
    heard.process._control.close()  # as the system does with those of a worker that was killed
    async with asyncio.timeout(60):
        await heard.gone.wait()
    await heard.process.wait()

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
