"""Spools: a body in a file, from its first fragment to its last reader."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.broker import spool as spool_module
from penstock.broker.buckets import BUCKET_BYTES, Bucket, BucketPool, MemoryAccount
from penstock.broker.spool import Spool, Spools


class Ground:
    """A spool directory, its pool, and what it complained of."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pool = BucketPool(1 << 30)
        self.faults: list[OSError] = []
        self.spools = Spools(
            directory,
            self.pool,
            asyncio.get_running_loop(),
            on_fault=self.faults.append,
            on_recovered=lambda: None,
        )
        self._account = MemoryAccount(self.pool, 1 << 30, lambda: None)

    def bucket(self, content: bytes) -> Bucket:
        bucket = self._account.take(max(len(content), 2))
        bucket.fill(memoryview(content))
        return bucket

    async def receive(self, *pieces: bytes) -> Spool:
        whole: asyncio.Future[Spool] = asyncio.get_running_loop().create_future()
        reception = self.spools.receive(whole.set_result)
        for number, piece in enumerate(pieces, 1):
            reception.append(self.bucket(piece), last=number == len(pieces))
        spool = await whole
        del whole
        await asyncio.sleep(0)  # the loop held it, too
        return spool

    @property
    def files(self) -> list[Path]:
        # The thread lets go of what it last worked on when it comes to the next.
        passed = threading.Event()
        self.spools._thread.submit(passed.set, lambda _: None)
        passed.wait()
        gc.collect()
        return sorted(self.directory.iterdir())

    async def read(self, spool: Spool, offset: int) -> Bucket:
        loop = asyncio.get_running_loop()
        came: asyncio.Future[Bucket] = loop.create_future()

        def done(bucket: Bucket, error: OSError | None) -> None:
            if error is None:
                came.set_result(bucket)
            else:
                bucket.release()
                came.set_exception(error)

        self.spools.read(spool, offset, done)
        return await came


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    ground = Ground(tmp_path / "spool")
    yield ground
    ground.spools.close()


async def test_fragments_become_a_body(ground: Ground) -> None:
    spool = await ground.receive(b"one,", b"two,", b"three")
    assert (spool.size, spool.read()) == (13, b"one,two,three")
    await asyncio.sleep(0)
    assert ground.pool.used == 0


async def test_it_is_read_back_a_bucket_at_a_time(ground: Ground) -> None:
    body = bytes(range(256)) * 2048
    spool = await ground.receive(body)
    taken = b""
    while len(taken) < spool.size:
        bucket = await ground.read(spool, len(taken))
        assert 0 < bucket.filled <= BUCKET_BYTES
        taken += bytes(bucket.content)
        bucket.release()
    assert taken == body
    await asyncio.sleep(0)
    assert ground.pool.used == 0


async def test_the_file_goes_with_its_last_holder(ground: Ground) -> None:
    spool = await ground.receive(b"body")
    other = spool
    del spool
    assert len(ground.files) == 1
    del other
    assert ground.files == []


async def test_a_link_outlives_it(ground: Ground, tmp_path: Path) -> None:
    spool = await ground.receive(b"body")
    spool.link(tmp_path / "kept")
    spool.link(tmp_path / "kept")  # twice is once
    del spool
    assert ground.files == []
    assert Spool(tmp_path / "kept", owned=False).read() == b"body"
    assert (tmp_path / "kept").exists(), "a file that is somebody else's stays"


async def test_a_hold_on_a_linked_body_outlives_the_link(ground: Ground, tmp_path: Path) -> None:
    spool = await ground.receive(b"body")
    spool.link(tmp_path / "theirs")
    del spool
    theirs = Spool(tmp_path / "theirs", owned=False)
    kept = ground.spools.relink(theirs)
    (tmp_path / "theirs").unlink()
    kept.link(tmp_path / "again")
    assert (kept.read(), kept.size) == (b"body", 4)
    assert ground.spools.relink(kept) is kept
    del kept
    assert ground.files == []


async def test_half_a_body_leaves_nothing(ground: Ground) -> None:
    completed: list[Spool] = []
    reception = ground.spools.receive(completed.append)
    reception.append(ground.bucket(b"half"), last=False)
    await asyncio.sleep(0)  # the writing has begun
    reception.cancel()
    reception = ground.spools.receive(completed.append)
    reception.append(ground.bucket(b"never written"), last=False)
    reception.cancel()
    del reception
    await ground.receive(b"another, behind it in the thread")
    await asyncio.sleep(0)
    assert (completed, ground.files, ground.pool.used) == ([], [], 0)


async def test_a_disk_that_refuses_is_asked_again_and_nothing_is_lost(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "RETRY_SECONDS", 0.001)
    write, refusals = Spool.write, [OSError(28, "No space left on device")] * 3

    def reluctant(self: Spool, data: memoryview) -> None:
        if refusals:
            raise refusals.pop()
        write(self, data)

    monkeypatch.setattr(Spool, "write", reluctant)
    spool = await ground.receive(b"one", b"two")
    assert (spool.read(), len(ground.faults)) == (b"onetwo", 3)


async def test_a_read_that_fails_keeps_no_bucket(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"body")
    spool = Spool(tmp_path / "body", owned=False)
    (tmp_path / "body").unlink()
    with pytest.raises(FileNotFoundError):
        await ground.read(spool, 0)
    assert ground.pool.used == 0


async def test_what_completion_raises_costs_no_bucket(ground: Ground) -> None:
    complained = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: complained.set())

    def fail(_: Spool) -> None:
        raise RuntimeError("the one who wanted it")

    reception = ground.spools.receive(fail)
    reception.append(ground.bucket(b"body"), last=True)
    await complained.wait()
    loop.set_exception_handler(None)
    assert ground.pool.used == 0


async def test_a_start_finds_the_directory_empty(ground: Ground, tmp_path: Path) -> None:
    (ground.directory / "left over").write_bytes(b"from before")
    (ground.directory / "queue-1").mkdir()
    again = Ground(ground.directory)
    assert again.files == []
    again.spools.close()
