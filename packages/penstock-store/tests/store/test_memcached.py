"""The cache in memcached: what it says, and what becomes of us when it does not."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ProtocolError
from penstock_store.cache import BlockingCache, MemcachedCache, open_cache
from penstock_store.cache.memcached import RECONNECT_SECONDS
from penstock_store.cache.memcached_protocol import MemcachedReplyParser, Reply
from tests.store.servers import Memcached

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def odd_server(handler: Handler) -> AsyncIterator[int]:
    """A server that does as it likes. Its port."""
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.peer
async def test_values_are_shared_by_those_who_use_the_server(memcached: Memcached) -> None:
    async with open_cache(memcached.url) as one, open_cache(memcached.url) as other:
        await one.set_many({"a": b"1", "b": b"\r\nEND\r\n", "c": b""})
        await one.delete("a")

        assert await other.get_many("abcd") == {"b": b"\r\nEND\r\n", "c": b""}
        assert await other.get("d") is None
        assert other.statistics.failures == 0


@pytest.mark.peer
async def test_many_keys_and_many_at_a_time(memcached: Memcached) -> None:
    async with open_cache(memcached.url) as cache:
        values = {f"k{n}": bytes([n % 256]) * n for n in range(500)}
        await cache.set_many(values)

        assert await cache.get_many(values) == values
        found = await asyncio.gather(*(cache.get(key) for key in values))
        assert dict(zip(values, found, strict=True)) == values


@pytest.mark.peer
async def test_what_the_server_has_not_is_a_miss_even_if_we_had_it(memcached: Memcached) -> None:
    async with open_cache(memcached.url) as one, open_cache(memcached.url) as other:
        await one.set("k", b"v")
        await other.delete("k")

        assert await one.get("k") is None


@pytest.mark.peer
async def test_a_value_too_large_is_counted_and_not_raised(memcached: Memcached) -> None:
    async with open_cache(memcached.url) as cache:
        await cache.set("large", bytes(2 << 20))
        await cache.set("small", b"v")

        assert cache.statistics.failures == 1
        assert await cache.get("small") == b"v"


@pytest.mark.peer
async def test_a_dead_server_is_answered_for_from_our_copy(memcached: Memcached) -> None:
    async with open_cache(memcached.url) as cache:
        await cache.set("k", b"v")
        memcached.kill()

        assert await cache.get("k") == b"v"
        assert await cache.get("other") is None
        assert cache.statistics.failures == 1
        assert cache.statistics.fallbacks == 1


@pytest.mark.peer
async def test_a_server_that_comes_back_is_used_again(memcached: Memcached) -> None:
    clock = Clock()
    async with MemcachedCache("127.0.0.1", memcached.port, clock=clock) as cache:
        memcached.kill()
        await cache.set("k", b"v")
        memcached.start()
        assert await cache.get("k") == b"v"  # it is left alone for a moment
        assert cache.statistics.fallbacks == 1

        clock.now += RECONNECT_SECONDS
        assert await cache.get("k") is None  # and has forgotten everything
        await cache.set("k", b"w")
        assert await cache.get("k") == b"w"


@pytest.mark.peer
async def test_a_server_that_hangs_costs_one_wait(memcached: Memcached) -> None:
    clock = Clock()
    async with MemcachedCache("127.0.0.1", memcached.port, timeout=0.1, clock=clock) as cache:
        await cache.set("k", b"v")
        os.kill(memcached.pid, signal.SIGSTOP)
        stopped = (os.P_PID, memcached.pid, os.WSTOPPED | os.WNOWAIT)
        await asyncio.to_thread(os.waitid, *stopped)  # it answers until then
        try:
            assert await cache.get("k") == b"v"
            assert await cache.get("k") == b"v"
            assert cache.statistics.failures == 1
        finally:
            os.kill(memcached.pid, signal.SIGCONT)
        clock.now += RECONNECT_SECONDS
        assert await cache.get("k") == b"v"
        assert cache.statistics.fallbacks == 2


@pytest.mark.peer
async def test_one_who_gives_up_leaves_the_replies_of_others_in_place(memcached: Memcached) -> None:
    async with open_cache(memcached.url) as cache:
        await cache.set_many({"a": b"1", "b": b"2"})
        for _ in range(20):
            impatient = asyncio.create_task(cache.get("a"))
            await asyncio.sleep(0)
            impatient.cancel()
            assert await cache.get("b") == b"2"


@pytest.mark.peer
def test_a_blocking_face_works_from_any_thread(memcached: Memcached) -> None:
    with BlockingCache(memcached.url) as cache:
        threads = [threading.Thread(target=cache.set, args=(f"k{n}", b"%d" % n)) for n in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(cache.get_many([f"k{n}" for n in range(5)])) == 5
        assert cache.statistics.failures == 0


async def test_a_server_that_ends_in_the_middle_of_a_write_is_away() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    async with odd_server(handler) as port, MemcachedCache("127.0.0.1", port) as cache:
        await cache.set("k", b"v")

        assert cache.statistics.failures == 1
        assert await cache.get("k") == b"v"


@pytest.mark.parametrize(
    "answer", [b"VALUE k 0 lots\r\n", b"VALUE\xff\r\n" * 3, bytes(5000), b"END\r\nEND\r\n"]
)
async def test_what_is_not_memcached_is_away(answer: bytes) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            writer.write(answer)

    async with odd_server(handler) as port, MemcachedCache("127.0.0.1", port) as cache:
        assert await cache.get("k") is None
        assert await cache.get("k") is None


@pytest.mark.parametrize("key", ["", "a b", "a\r\nflush_all", "k" * 251, "ü"])
async def test_a_key_that_could_be_more_than_a_key_is_a_mistake(key: str) -> None:
    async with MemcachedCache("127.0.0.1", 1) as cache:
        with pytest.raises(ValueError, match="invalid memcached key"):
            await cache.set(key, b"v")


VALUES = st.dictionaries(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8),
    st.binary(max_size=30),
    max_size=4,
)
REPLIES = st.lists(
    VALUES | st.sampled_from([b"STORED", b"DELETED", b"SERVER_ERROR no"]), max_size=6
)


def written(reply: Reply) -> bytes:
    if isinstance(reply, bytes):
        return reply + b"\r\n"
    return (
        b"".join(
            b"VALUE %b 0 %d\r\n%b\r\n" % (key.encode(), len(value), value)
            for key, value in reply.items()
        )
        + b"END\r\n"
    )


@given(replies=REPLIES, cuts=st.lists(st.integers(0, 200), max_size=8))
def test_replies_are_read_however_they_are_cut(replies: list[Reply], cuts: list[int]) -> None:
    data = b"".join(map(written, replies))
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    reader = MemcachedReplyParser()
    found = [
        reply for start, end in itertools.pairwise(places) for reply in reader.feed(data[start:end])
    ]

    assert found == replies


@given(data=st.binary(max_size=200))
def test_whatever_is_read_is_a_reply_or_a_named_fault(data: bytes) -> None:
    try:
        for reply in MemcachedReplyParser().feed(data):
            assert isinstance(reply, dict | bytes)
    except ProtocolError:
        pass
