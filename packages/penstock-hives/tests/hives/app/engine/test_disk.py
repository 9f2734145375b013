"""The cache on disk: made once, seen whole or not at all, and nobody's if it is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock_hives.server import disk_cache
from penstock_hives.server.disk_cache import DiskCache


def value(given: bytes) -> Callable[[], Awaitable[bytes]]:
    async def make() -> bytes:
        return given

    return make


async def test_a_value_is_made_once_and_found_from_then_on(tmp_path: Path) -> None:
    async with DiskCache(tmp_path) as cache:
        made = await cache.find("a", value(b"value"))
        again = await cache.find("a", value(b"another"))
        assert made == again
        assert again.read_bytes() == b"value"
    async with DiskCache(tmp_path) as other:
        assert (await other.find("a", value(b"another"))).read_bytes() == b"value"
        assert other.made == 0


async def test_many_who_ask_at_once_have_it_made_once(tmp_path: Path) -> None:
    calls = []
    go = asyncio.Event()

    async def make() -> bytes:
        calls.append(1)
        await go.wait()
        return b"value"

    async with DiskCache(tmp_path) as cache:
        asking = [asyncio.create_task(cache.find("a", make)) for _ in range(50)]
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(*asking)
    assert len(calls) == 1


async def test_a_value_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    async def make() -> bytes:
        raise ValueError("no picture")

    async with DiskCache(tmp_path) as cache:
        with pytest.raises(ValueError, match="no picture"):
            await cache.find("a", make)
        assert (await cache.find("a", value(b"value"))).read_bytes() == b"value"
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


async def test_a_write_that_fails_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", full)
    async with DiskCache(tmp_path) as cache:
        with pytest.raises(OSError, match="no space"):
            await cache.find("a", value(b"value"))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


async def test_files_may_be_deleted_at_any_time(tmp_path: Path) -> None:
    async with DiskCache(tmp_path) as cache:
        (await cache.find("a", value(b"value"))).unlink()
        assert (await cache.find("a", value(b"made anew"))).read_bytes() == b"made anew"


async def test_the_least_recently_used_goes_when_there_is_too_much(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, max_bytes=1000)
    tmp_path.mkdir(exist_ok=True)
    paths = [await cache.find(str(n), value(b"x" * 100)) for n in range(12)]
    await cache.find("0", value(b""))  # used again
    await cache._evict()
    assert paths[0].exists()
    assert not paths[1].exists()
    assert cache.size <= 1000


async def test_the_loader_learns_of_what_was_there_and_clears_what_was_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with DiskCache(tmp_path) as before:
        kept = await before.find("a", value(b"value"))
    (kept.parent / "left.part").write_bytes(b"half")
    monkeypatch.setattr(disk_cache, "_ABANDONED_SECONDS", -1.0)
    cache = DiskCache(tmp_path)
    await cache._load()
    assert cache.size == len(b"value")
    assert not (kept.parent / "left.part").exists()
