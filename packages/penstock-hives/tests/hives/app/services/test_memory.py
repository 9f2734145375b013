"""Answers remembered for everybody."""

from __future__ import annotations

import asyncio

import pytest

from penstock_store import StoreUnavailable
from penstock_store.cache.single_flight import (
    FRESH_SECONDS,
    RETRY_SECONDS,
    STALE_SECONDS,
    StaleIfErrorCache,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Source:
    """Counts how often it is asked; may be away."""

    def __init__(self) -> None:
        self.asked = 0
        self.away = False

    async def __call__(self) -> int:
        self.asked += 1
        await asyncio.sleep(0)
        if self.away:
            raise StoreUnavailable("away")
        return self.asked


async def test_however_many_ask_it_is_made_once() -> None:
    source, memory = Source(), StaleIfErrorCache(Clock())

    answers = await asyncio.gather(*(memory.get("k", source) for _ in range(50)))

    assert set(answers) == {1}
    assert await memory.get("k", source) == 1


async def test_after_a_minute_it_is_made_anew() -> None:
    clock, source = Clock(), Source()
    memory = StaleIfErrorCache(clock)
    await memory.get("k", source)

    clock.now = FRESH_SECONDS + 1

    assert await memory.get("k", source) == 2


async def test_while_nothing_newer_can_be_made_the_older_one_serves_for_a_time() -> None:
    clock, source = Clock(), Source()
    memory = StaleIfErrorCache(clock)
    await memory.get("k", source)
    source.away = True

    clock.now = FRESH_SECONDS + 1
    assert await memory.get("k", source) == 1

    clock.now = STALE_SECONDS + 1
    with pytest.raises(StoreUnavailable):
        await memory.get("k", source)


async def test_while_the_database_is_away_one_in_a_while_tries_and_nobody_else_waits() -> None:
    clock, source = Clock(), Source()
    memory = StaleIfErrorCache(clock)
    await memory.get("known", source)
    source.away = True
    clock.now = FRESH_SECONDS + 1

    for _ in range(5):
        assert await memory.get("known", source) == 1
        with pytest.raises(StoreUnavailable):
            await memory.get("unknown", source)
    assert source.asked == 2

    source.away = False
    clock.now += RETRY_SECONDS
    assert await memory.get("unknown", source) == 3
