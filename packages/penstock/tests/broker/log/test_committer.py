"""Group commit: who is told what, and when."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.log import AckFile, Committer, Log
from penstock.broker.log.compacted_file import CompactedFile
from tests.broker.log.given import Disk, Listener, bodies, message


class Gate:
    """A sync that waits until it is let through."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.count = 0

    def __call__(self, descriptor: int) -> None:
        self.count += 1
        assert self.open.wait(60)


def here() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def gated(gate: Gate) -> Committer:
    return Committer(here(), on_fault=print, on_recovered=lambda: None, sync=gate)


async def test_a_receipt_is_confirmed_once_its_data_is_synced(tmp_path: Path) -> None:
    disk, listener = Disk(here()), Listener()
    log = Log(tmp_path / "log", disk.committer)
    log.append(message())
    disk.committer.wait(listener.channel(), 7)
    assert log.synced_offset == 0
    disk.committer.write()
    assert listener.confirmed == []
    await listener.until(lambda: listener.confirmed == [7])
    assert (log.written_offset, log.synced_offset) == (1, 1)
    await disk.committer.close()


async def test_many_receipts_share_few_syncs(tmp_path: Path) -> None:
    gate, listener = Gate(), Listener()
    committer = gated(gate)
    log = Log(tmp_path / "log", committer)
    for receipt in range(1, 1001):  # each in a turn of its own, while the first is being synced
        log.append(message())
        committer.wait(listener.channel(), receipt)
        committer.write()
    gate.open.set()
    await listener.until(lambda: len(listener.confirmed) == 1000)
    assert listener.confirmed == list(range(1, 1001))
    assert gate.count <= 4  # two cycles: the file twice, its directory and the one above
    await committer.close()


async def test_who_comes_while_the_thread_syncs_waits_for_the_next_sync(tmp_path: Path) -> None:
    gate, listener = Gate(), Listener()
    committer = gated(gate)
    log = Log(tmp_path / "log", committer)
    synced_at_confirm: list[tuple[int, int]] = []
    for number in (1, 2):
        log.append(message())
        committer.after(
            lambda number=number: synced_at_confirm.append((number, log.synced_offset))  # type: ignore[misc]
        )
        committer.wait(listener.channel(), number)
        committer.write()
    gate.open.set()
    await listener.until(lambda: listener.confirmed == [1, 2])
    assert synced_at_confirm == [(1, 1), (2, 2)]
    await committer.close()


async def test_sockets_are_flushed_once_for_each_cycle(tmp_path: Path) -> None:
    disk, listener = Disk(here()), Listener()
    log = Log(tmp_path / "log", disk.committer)
    for receipt in range(10):
        log.append(message())
        disk.committer.wait(listener.channel(), receipt)
    disk.committer.write()
    await disk.until(lambda: disk.cycles == 1)
    assert len(listener.confirmed) == 10
    await disk.committer.close()


async def test_nobody_is_kept_from_being_told_by_another(tmp_path: Path) -> None:
    disk, listener = Disk(here()), Listener()
    complaints: list[dict[str, Any]] = []
    here().set_exception_handler(lambda _, context: complaints.append(context))

    def bad() -> None:
        raise ValueError("mine")

    disk.committer.after(bad)
    told = asyncio.Event()
    disk.committer.after(told.set)
    disk.committer.wait(listener.channel(), 1)
    disk.committer.write()
    await told.wait()
    assert listener.confirmed == [1]
    assert [str(context["exception"]) for context in complaints] == ["mine"]
    await disk.committer.close()


async def test_other_files_are_synced_before_their_waiters_are_told(tmp_path: Path) -> None:
    gate, listener = Gate(), Listener()
    committer = gated(gate)
    with (tmp_path / "spool").open("wb") as spool:
        committer.also_sync(spool)
    committer.wait(listener.channel(), 1)  # the file is closed by now: that does not matter
    committer.write()
    gate.open.set()
    await listener.until(lambda: listener.confirmed == [1])
    assert gate.count == 1
    await committer.close()


async def test_what_nobody_waits_for_is_synced_in_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.broker.log.committer.LAZY_SYNC_SECONDS", 0.01)
    disk = Disk(here())
    log, acks = Log(tmp_path / "log", disk.committer), AckFile(tmp_path / "acks", disk.committer)
    log.append(message())
    acks.add(0)
    disk.committer.write()
    assert log.synced_offset == 0
    await disk.until(lambda: disk.cycles > 0)
    assert log.synced_offset == 1
    await disk.committer.close()


async def test_acknowledgements_do_not_ride_on_every_cycle(tmp_path: Path) -> None:
    disk, listener = Disk(here()), Listener()
    log, acks = Log(tmp_path / "log", disk.committer), AckFile(tmp_path / "acks", disk.committer)
    log.append(message())
    disk.committer.wait(listener.channel(), 1)
    disk.committer.write()
    await listener.until(lambda: listener.confirmed == [1])
    before = disk.syncs
    log.append(message())
    acks.add(0)
    disk.committer.wait(listener.channel(), 2)
    disk.committer.write()
    await listener.until(lambda: listener.confirmed == [1, 2])
    assert disk.syncs == before + 1
    await disk.committer.close()
    assert disk.syncs == before + 4  # the acknowledgements, and the names of file and directory


async def test_data_is_written_before_the_acknowledgements_of_the_same_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that moves between queues is always in one of them."""
    disk = Disk(here())
    acks, log = AckFile(tmp_path / "acks", disk.committer), Log(tmp_path / "log", disk.committer)
    order: list[str] = []
    monkeypatch.setattr(CompactedFile, "write", lambda _: order.append("acks"))
    monkeypatch.setattr(log, "write", lambda: order.append("log"))
    acks.add(0)
    log.append(message())
    disk.committer.write()
    assert order == ["log", "acks"]
    monkeypatch.undo()
    await disk.committer.close()


async def test_closing_tells_all_who_wait(tmp_path: Path) -> None:
    disk, listener = Disk(here()), Listener()
    log = Log(tmp_path / "log", disk.committer)
    log.append(message())
    disk.committer.wait(listener.channel(), 1)
    await disk.committer.close()
    assert listener.confirmed == [1]
    assert log.synced_offset == 1


async def test_a_log_closed_before_the_sync_is_synced_all_the_same(tmp_path: Path) -> None:
    disk, listener = Disk(here()), Listener()
    log = Log(tmp_path / "log", disk.committer)
    log.append(message())
    disk.committer.wait(listener.channel(), 1)
    log.close()
    assert disk.syncs == 0
    disk.committer.write()
    await listener.until(lambda: listener.confirmed == [1])
    assert disk.syncs > 0
    await disk.committer.close()


# Faults.


async def test_a_failed_sync_confirms_nothing_and_fails_who_waited(tmp_path: Path) -> None:
    disk, listener = Disk(here()), Listener()
    log = Log(tmp_path / "log", disk.committer)
    disk.broken = OSError(errno.EIO, "Input/output error")
    log.append(message(b"doubtful"))
    disk.committer.wait(listener.channel(), 1)
    disk.committer.write()
    await listener.until(lambda: listener.failed == [1])
    assert disk.faults == [disk.broken]
    assert (listener.confirmed, log.synced_offset) == ([], 0)
    disk.broken = None
    await disk.until(lambda: disk.recoveries == 1)
    log.append(message(b"sure"))
    disk.committer.wait(listener.channel(), 2)
    disk.committer.write()
    await listener.until(lambda: listener.confirmed == [2])
    assert listener.failed == [1]
    assert len(disk.faults) == 1
    # The doubtful file is left alone: what is sure is in another.
    assert len(list((tmp_path / "log").glob("*.seg"))) == 2
    await disk.committer.close()


async def test_what_was_written_during_a_failed_sync_is_failed_too(tmp_path: Path) -> None:
    """The kernel may have dropped it with the rest, and a second sync would not say so."""
    gate, listener = Gate(), Listener()
    recovered = asyncio.Event()

    def sync(descriptor: int) -> None:
        gate(descriptor)
        if gate.count == 1:
            raise OSError(errno.EIO, "Input/output error")

    committer = Committer(
        here(),
        on_fault=lambda _: None,
        on_recovered=recovered.set,
        retry_seconds=0.01,
        sync=sync,
    )
    log = Log(tmp_path / "log", committer)
    for receipt in (1, 2):
        log.append(message())
        committer.wait(listener.channel(), receipt)
        committer.write()
    gate.open.set()
    await recovered.wait()
    await committer.close()
    assert (listener.confirmed, listener.failed) == ([], [1, 2])


class FullDisk:
    """Writes that stop after so many bytes, as on a disk that fills up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        self.tries = 0
        self.pwritev = os.pwritev
        monkeypatch.setattr(os, "pwritev", self)

    def __call__(self, descriptor: int, buffers: list[bytes], position: int) -> int:
        self.tries += 1
        data = b"".join(buffers)[: self.room]
        if not data:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(data)
        return self.pwritev(descriptor, [data], position)


@pytest.mark.parametrize("room", [0, 1, 63, 64, 65, 150])
async def test_a_full_disk_loses_nothing_and_confirms_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    disk, listener = Disk(here()), Listener()
    log = Log(tmp_path / "log", disk.committer)
    log.append(message(b"before"))
    disk.committer.write()
    size = log.bytes
    full = FullDisk(monkeypatch, room)
    log.append(message(b"during"))
    disk.committer.wait(listener.channel(), 1)
    disk.committer.write()
    assert [fault.errno for fault in disk.faults] == [errno.ENOSPC]
    assert next((tmp_path / "log").glob("*.seg")).stat().st_size == size  # nothing torn
    tries = full.tries
    log.append(message(b"and more"))
    disk.committer.wait(listener.channel(), 2)
    disk.committer.write()
    assert full.tries == tries  # not with every turn, but in its time
    assert (listener.confirmed, log.written_offset) == ([], 1)
    full.room = 1 << 20
    await listener.until(lambda: listener.confirmed == [1, 2])
    assert (len(disk.faults), disk.recoveries) == (1, 1)
    assert bodies(log) == [b"before", b"during", b"and more"]
    await disk.committer.close()


async def test_a_disk_that_is_still_full_at_the_end_fails_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, listener = Disk(here()), Listener()
    log = Log(tmp_path / "log", disk.committer)
    FullDisk(monkeypatch, 0)
    log.append(message())
    disk.committer.wait(listener.channel(), 1)
    disk.committer.write()
    await disk.committer.close()
    assert (listener.confirmed, listener.failed) == ([], [1])


async def test_what_is_written_lazily_can_be_waited_for(tmp_path: Path) -> None:
    synced: list[int] = []
    committer = Committer(
        here(),
        on_fault=print,
        on_recovered=lambda: None,
        sync=lambda fd: synced.append(os.fstat(fd).st_ino),
    )
    acks = AckFile(tmp_path / "acks", committer)
    acks.add(0)
    committer.write()
    acks.add(1)
    acks.hasten()
    told = asyncio.Event()
    committer.after(told.set)
    committer.write()
    await told.wait()
    assert (tmp_path / "acks").stat().st_ino in synced
    await committer.close()
