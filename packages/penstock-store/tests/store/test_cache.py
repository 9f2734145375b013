"""The cache in this process, keys, and one flight at a time."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigurationError
from penstock_store.cache import (
    BlockingCache,
    CacheKeys,
    MemoryCache,
    SingleFlight,
    open_cache,
)
from penstock_store.cache.cache import MAX_KEY_BYTES
from penstock_store.cache.memory import LruCache


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_value_is_there_until_its_time() -> None:
    clock = Clock()
    shelf = LruCache(clock=clock)
    shelf.set("k", b"v", ttl=10)

    clock.now = 9.9
    assert shelf.get("k") == b"v"
    clock.now = 10.0
    assert shelf.get("k") is None
    assert len(shelf) == 0


def test_the_least_recently_used_goes_first() -> None:
    shelf = LruCache(max_entries=2)
    for key in ("a", "b"):
        shelf.set(key, b"v", ttl=10)
    shelf.get("a")
    shelf.set("c", b"v", ttl=10)

    assert [key for key in ("a", "b", "c") if shelf.get(key)] == ["a", "c"]


def test_a_value_larger_than_the_shelf_is_not_kept_and_ousts_nobody() -> None:
    shelf = LruCache(max_bytes=1000)
    shelf.set("small", b"v", ttl=10)
    shelf.set("large", bytes(2000), ttl=10)

    assert shelf.get("large") is None
    assert shelf.get("small") == b"v"


def test_a_value_that_cannot_be_kept_does_not_leave_the_old_one() -> None:
    shelf = LruCache(max_bytes=1000)
    shelf.set("k", b"old", ttl=10)
    shelf.set("k", bytes(2000), ttl=10)

    assert shelf.get("k") is None


@given(
    steps=st.lists(
        st.tuples(st.sampled_from("abcdef"), st.integers(0, 900), st.sampled_from("sgd")),
        max_size=60,
    )
)
def test_it_never_holds_more_than_was_said(steps: list[tuple[str, int, str]]) -> None:
    shelf = LruCache(max_entries=4, max_bytes=2000)
    for key, size, what in steps:
        if what == "s":
            shelf.set(key, bytes(size), ttl=10)
        elif what == "d":
            shelf.delete(key)
        else:
            shelf.get(key)
        assert len(shelf) <= 4
        assert 0 <= shelf.size <= 2000
    for key in "abcdef":
        shelf.delete(key)
    assert shelf.size == 0


async def test_hits_and_misses_are_counted() -> None:
    async with MemoryCache() as cache:
        await cache.set_many({"a": b"1", "b": b"2"})
        await cache.delete("b")

        assert await cache.get_many(["a", "b", "c"]) == {"a": b"1"}
        assert (cache.statistics.hits, cache.statistics.misses) == (1, 2)


def test_a_key_has_the_version_of_its_values_in_it() -> None:
    assert CacheKeys("h", 1).key("hive", 7) == "h1:hive:7"


@given(name=st.text(max_size=400), other=st.text(max_size=400))
def test_any_name_gives_a_key_memcached_takes_and_its_own(name: str, other: str) -> None:
    keys = CacheKeys("h", 1)
    key = keys.key("search", name)

    assert len(key) <= MAX_KEY_BYTES
    assert all("!" <= character <= "~" for character in key)
    assert (key == keys.key("search", other)) == (name == other)


async def test_what_many_ask_for_is_made_once() -> None:
    flight: SingleFlight[int] = SingleFlight()
    go = asyncio.Event()
    made = 0

    async def make() -> int:
        nonlocal made
        made += 1
        await go.wait()
        return 7

    waiting = [asyncio.create_task(flight.run("k", make)) for _ in range(5)]
    await asyncio.sleep(0)
    go.set()

    assert await asyncio.gather(*waiting) == [7] * 5
    assert made == 1


async def test_all_who_wait_get_the_same_error_and_the_next_tries_anew() -> None:
    flight: SingleFlight[int] = SingleFlight()

    async def fail() -> int:
        raise LookupError

    async def succeed() -> int:
        return 7

    results = await asyncio.gather(
        flight.run("k", fail), flight.run("k", fail), return_exceptions=True
    )

    assert [type(result) for result in results] == [LookupError] * 2
    assert await flight.run("k", succeed) == 7


async def test_one_who_gives_up_disturbs_nobody() -> None:
    flight: SingleFlight[int] = SingleFlight()
    go = asyncio.Event()

    async def make() -> int:
        await go.wait()
        return 7

    first = asyncio.create_task(flight.run("k", make))
    second = asyncio.create_task(flight.run("k", make))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    go.set()

    assert await second == 7


async def test_work_nobody_waits_for_is_given_up() -> None:
    flight: SingleFlight[None] = SingleFlight()
    given_up = asyncio.Event()

    async def make() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()

    only = asyncio.create_task(flight.run("k", make))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    only.cancel()

    await asyncio.wait_for(given_up.wait(), 60)


def test_a_cache_for_those_who_wait() -> None:
    with BlockingCache(None) as cache:
        cache.set("k", b"v")
        cache.set_many({"l": b"w"})

        assert cache.get("k") == b"v"
        assert cache.get_many(["k", "l", "m"]) == {"k": b"v", "l": b"w"}
        cache.delete("k")
        assert cache.get("k") is None


@pytest.mark.parametrize("url", ["redis://localhost", "memcached://", "memcached://h:port", ""])
def test_what_is_no_cache_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="cache URL"):
        open_cache(url)
