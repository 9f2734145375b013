"""Names on the disk: synced folders, shared by whoever comes meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.pump.landing import folders
from penstock.pump.landing.folders import Folders
from penstock.pump.threads import Hands


class Disk:
    """Syncs when it is let."""

    def __init__(self) -> None:
        self.synced: list[Path] = []
        self.begun = threading.Semaphore(0)
        self.let = threading.Semaphore(0)
        self.broken = False

    def sync(self, folder: Path) -> None:
        self.begun.release()
        assert self.let.acquire(timeout=60)
        self.synced.append(folder)
        if self.broken:
            raise OSError(5, "Input/output error")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    monkeypatch.setattr(folders, "sync_folder", disk.sync)
    yield disk
    disk.let.release(100)


async def test_whoever_comes_during_a_sync_shares_the_next(disk: Disk, tmp_path: Path) -> None:
    hands = Hands(2)
    found = Folders(hands)
    first = asyncio.create_task(found.synced(tmp_path))
    await asyncio.to_thread(disk.begun.acquire)
    others = [asyncio.create_task(found.synced(tmp_path)) for _ in range(10)]
    await asyncio.sleep(0)
    disk.let.release()
    await first
    assert not any(each.done() for each in others)
    disk.let.release()
    async with asyncio.timeout(60):
        await asyncio.gather(*others)
    assert disk.synced == [tmp_path] * 2
    await hands.close()


async def test_a_disk_that_fails_fails_those_who_wait(disk: Disk, tmp_path: Path) -> None:
    hands = Hands(1)
    found = Folders(hands)
    disk.broken = True
    disk.let.release()
    with pytest.raises(OSError, match="Input/output"):
        await found.synced(tmp_path)
    disk.broken = False
    disk.let.release()
    await found.synced(tmp_path)
    await hands.close()


async def test_hands_give_back_what_was_found_or_raised() -> None:
    hands = Hands(3)
    assert await asyncio.gather(*(hands.do(pow, each, 2) for each in range(100))) == [
        each * each for each in range(100)
    ]
    with pytest.raises(ZeroDivisionError):
        await hands.do(lambda: 1 / 0)
    await hands.close()


async def test_whoever_is_cancelled_waits_for_the_hand() -> None:
    hands = Hands(1)
    begun, let = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert let.wait(60)

    doing = asyncio.create_task(hands.do(work))
    await asyncio.to_thread(begun.wait)
    doing.cancel()
    await asyncio.sleep(0)
    assert not doing.done()
    let.set()
    with pytest.raises(asyncio.CancelledError):
        await doing
    await hands.close()
