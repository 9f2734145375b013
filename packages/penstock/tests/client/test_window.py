"""The window of what is under way, against the obvious rules."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.sender import InflightWindow


async def begun(task: asyncio.Task[None]) -> bool:
    await asyncio.sleep(0)
    return task.done()


async def test_messages_are_counted() -> None:
    window = InflightWindow(2, 100)
    await window.enter(1)
    await window.enter(1)
    third = asyncio.create_task(window.enter(1))
    assert not await begun(third)
    window.leave(1)
    await third


async def test_bytes_are_counted() -> None:
    window = InflightWindow(10, 100)
    await window.enter(60)
    second = asyncio.create_task(window.enter(60))
    assert not await begun(second)
    window.leave(60)
    await second


async def test_one_larger_than_the_window_passes_alone() -> None:
    window = InflightWindow(10, 100)
    await window.enter(1000)
    second = asyncio.create_task(window.enter(1))
    assert not await begun(second)
    window.leave(1000)
    await second


async def test_a_small_one_does_not_overtake_a_large_one() -> None:
    window = InflightWindow(10, 100)
    await window.enter(50)
    large = asyncio.create_task(window.enter(80))
    await asyncio.sleep(0)
    small = asyncio.create_task(window.enter(1))
    assert not await begun(small)
    window.leave(50)
    await large
    await small


async def test_one_who_gives_up_lets_the_next_pass() -> None:
    window = InflightWindow(10, 100)
    await window.enter(50)
    large = asyncio.create_task(window.enter(80))
    await asyncio.sleep(0)
    small = asyncio.create_task(window.enter(1))
    await asyncio.sleep(0)
    large.cancel()
    await small
    assert large.cancelled() or large.cancelling()


@given(st.lists(st.tuples(st.integers(0, 150), st.booleans()), max_size=40))
def test_whatever_comes_and_goes_all_pass_and_none_is_left(
    entries: list[tuple[int, bool]],
) -> None:
    async def run() -> None:
        window = InflightWindow(3, 100)
        inside: list[int] = []

        async def pass_through(size: int) -> None:
            await window.enter(size)
            inside.append(size)
            try:
                assert len(inside) == 1 or (len(inside) <= 3 and sum(inside) <= 100)
                await asyncio.sleep(0)
            finally:
                inside.remove(size)
                window.leave(size)

        tasks = [asyncio.create_task(pass_through(size)) for size, _ in entries]
        await asyncio.sleep(0)
        for task, (_, stays) in zip(tasks, entries, strict=True):
            if not stays and task.cancel():
                await asyncio.sleep(0)
        async with asyncio.timeout(5):
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert not [outcome for outcome in outcomes if isinstance(outcome, AssertionError)]

    asyncio.run(run())
