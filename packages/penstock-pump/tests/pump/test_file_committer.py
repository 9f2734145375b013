"""Files that land together: one sync for all, names only for what is right, one's fault is his."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from penstock_pump.errors import OutsideDirectory, SumMismatch
from penstock_pump.files import committer as disks
from penstock_pump.files import committer as landing_crews
from penstock_pump.files.committer import (
    SLOW_SYNC_SECONDS,
    SYNC_PAUSE_SECONDS,
    DiskSync,
    FileCommitter,
    PendingFile,
)
from penstock_pump.files.inflight import InflightFile
from penstock_pump.files.target import FolderCache, LocalTarget
from penstock_pump.posts.checksums import Checksum
from penstock_pump.thread_pool import BatchThreadPool


class Syncs:
    """What was synced, in place of the kernel's."""

    def __init__(self) -> None:
        self.each: list[int] = []
        self.all = 0
        self.broken = False
        self.takes = 0.0
        self.now = 0.0

    def one(self, file: int) -> None:
        self.each.append(file)
        if self.broken:
            raise OSError(5, "Input/output error")

    def whole(self, file: int) -> None:
        self.all += 1
        self.now += self.takes
        if self.broken:
            raise OSError(5, "Input/output error")


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    syncs = Syncs()
    monkeypatch.setattr(os, "fsync", syncs.one)
    monkeypatch.setattr(disks, "sync_of", lambda _: syncs.whole)
    return syncs


@pytest.fixture
def disk(syncs: Syncs) -> Iterator[DiskSync]:
    disk = DiskSync(lambda: syncs.now)
    yield disk
    disk.close()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[int]]:
    opened = [os.open(tmp_path / str(each), os.O_RDWR | os.O_CREAT) for each in range(3)]
    yield opened
    for each in opened:
        os.close(each)


@pytest.fixture
async def committer() -> AsyncIterator[FileCommitter]:
    committer = FileCommitter()
    yield committer
    await committer.close()


def pending_file(folder: Path, name: str, error: Exception | None = None) -> PendingFile:
    draft = InflightFile(f"{folder / name}.tmp", None, None)

    def write_content() -> Checksum | str | None:
        draft.open()
        draft.write(name.encode())
        if error is not None:
            raise error
        return None

    return PendingFile(draft, str(folder / name), write_content)


def test_several_files_are_synced_at_once(disk: DiskSync, syncs: Syncs, files: list[int]) -> None:
    disk.sync(files)
    assert (syncs.all, syncs.each) == (1, [])


def test_a_file_alone_is_synced_by_itself(disk: DiskSync, syncs: Syncs, files: list[int]) -> None:
    disk.sync(files[:1])
    assert (syncs.all, syncs.each) == (0, files[:1])


def test_where_others_write_much_files_are_synced_by_themselves_for_a_while(
    disk: DiskSync, syncs: Syncs, files: list[int]
) -> None:
    syncs.takes = 2 * SLOW_SYNC_SECONDS
    disk.sync(files)
    disk.sync(files)
    assert (syncs.all, sorted(syncs.each)) == (1, files)
    syncs.now += SYNC_PAUSE_SECONDS
    disk.sync(files)
    assert syncs.all == 2


def test_a_file_system_nobody_knows_has_its_files_synced_each(
    disk: DiskSync, syncs: Syncs, files: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "sync_of", lambda _: None)
    disk.sync(files)
    assert sorted(syncs.each) == files


def test_the_real_disk_can_be_synced(tmp_path: Path, files: list[int]) -> None:
    disk = DiskSync()
    disk.sync(files)
    disk.sync_folders([str(tmp_path)])
    disk.close()


async def test_files_of_one_turn_land_with_two_syncs(
    syncs: Syncs, committer: FileCommitter, tmp_path: Path
) -> None:
    pending_files = [pending_file(tmp_path, f"f{each}") for each in range(10)]
    await asyncio.gather(*map(committer.commit, pending_files))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"f{each}" for each in range(10)]
    assert syncs.all + len(syncs.each) == 2  # of the files, and of their folder


async def test_what_is_not_right_gets_no_name_and_is_nobody_elses_fault(
    committer: FileCommitter, tmp_path: Path
) -> None:
    bad = pending_file(tmp_path, "bad", SumMismatch("another"))
    good = pending_file(tmp_path, "good")
    found = await asyncio.gather(
        committer.commit(bad), committer.commit(good), return_exceptions=True
    )
    bad.inflight_file.close()
    assert isinstance(found[0], SumMismatch)
    assert found[1] is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good"]


async def test_what_is_not_on_the_disk_gets_no_name(
    syncs: Syncs, committer: FileCommitter, tmp_path: Path
) -> None:
    syncs.broken = True
    pending_files = [pending_file(tmp_path, f"f{each}") for each in range(3)]
    found = await asyncio.gather(*map(committer.commit, pending_files), return_exceptions=True)
    for each in pending_files:
        each.inflight_file.close()
    assert all(isinstance(each, OSError) for each in found)
    assert not (tmp_path / "f0").exists()


async def test_who_comes_just_as_a_crew_is_done_does_not_wait_for_it(
    committer: FileCommitter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing_crews, "MAX_COMMIT_TASKS", 1)
    async with asyncio.timeout(60):
        await committer.commit(pending_file(tmp_path, "a"))
        await committer.commit(pending_file(tmp_path, "b"))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "b"]


async def test_a_crew_that_is_cancelled_leaves_nobody_waiting(
    committer: FileCommitter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing_crews, "MAX_COMMIT_TASKS", 1)
    monkeypatch.setattr(landing_crews, "MAX_BATCH_FILES", 1)
    begun, let = threading.Event(), threading.Event()

    def write_content() -> None:
        begun.set()
        assert let.wait(60)

    draft = InflightFile(f"{tmp_path}/a.tmp", None, None)
    first = committer.commit(PendingFile(draft, f"{tmp_path}/a", write_content))
    second = committer.commit(pending_file(tmp_path, "b"))
    await asyncio.to_thread(begun.wait)
    (commit_task,) = (each for each in asyncio.all_tasks() if each is not asyncio.current_task())
    commit_task.cancel()
    let.set()
    for each in (first, second):
        async with asyncio.timeout(60):
            with pytest.raises(asyncio.CancelledError):
                await each


async def test_a_crew_that_is_cancelled_before_it_has_begun_leaves_nobody_waiting(
    committer: FileCommitter, tmp_path: Path
) -> None:
    committed = committer.commit(pending_file(tmp_path, "a"))
    (commit_task,) = (each for each in asyncio.all_tasks() if each is not asyncio.current_task())
    commit_task.cancel()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await committed
        await committer.commit(pending_file(tmp_path, "b"))
    assert [each.name for each in tmp_path.iterdir()] == ["b"]


async def test_a_large_file_lands_alone(committer: FileCommitter, tmp_path: Path) -> None:
    assert await committer.commit_alone(pending_file(tmp_path, "large")) is None
    assert (tmp_path / "large").read_bytes() == b"large"


def test_a_folder_is_made_where_it_is_missing(tmp_path: Path) -> None:
    folders = FolderCache()
    for _ in range(2):
        folders.prepare(LocalTarget(tmp_path, "a/b/f"))
    assert (tmp_path / "a/b").is_dir()


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    folders = FolderCache()
    folders.prepare(LocalTarget(tmp_path, "a/f"))
    (tmp_path / "a").rmdir()
    folders.prepare(LocalTarget(tmp_path, "a/f"))
    assert (tmp_path / "a").is_dir()


def test_a_link_in_place_of_a_known_folder_is_looked_at_anew(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    folders = FolderCache()
    folders.prepare(LocalTarget(home, "a/f"))
    (home / "a").rmdir()
    (home / "a").symlink_to(outside)
    with pytest.raises(OutsideDirectory):
        folders.prepare(LocalTarget(home, "a/f"))


async def test_hands_give_back_what_was_found_or_raised() -> None:
    thread_pool = BatchThreadPool(3)
    assert await asyncio.gather(
        *(thread_pool.submit(partial(pow, each, 2)) for each in range(100))
    ) == [each * each for each in range(100)]
    with pytest.raises(ZeroDivisionError):
        await thread_pool.submit(lambda: 1 / 0)
    await thread_pool.close()


async def test_what_is_wanted_in_one_turn_is_done_by_one_hand() -> None:
    thread_pool = BatchThreadPool(3)
    found = await asyncio.gather(*(thread_pool.submit(threading.get_ident) for _ in range(10)))
    assert len(set(found)) == 1
    await thread_pool.close()


async def test_whoever_is_cancelled_waits_for_the_hand() -> None:
    thread_pool = BatchThreadPool(1)
    begun, let = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert let.wait(60)

    async def wait() -> None:
        await thread_pool.submit(work)

    doing = asyncio.create_task(wait())
    await asyncio.to_thread(begun.wait)
    doing.cancel()
    await asyncio.sleep(0)
    assert not doing.done()
    let.set()
    with pytest.raises(asyncio.CancelledError):
        await doing
    await thread_pool.close()
