"""A queue on a disk that is full: consumers wait for what cannot be read back, and lose nothing."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.log.log import SegmentList
from tests.doubles import Client, Stand, message


class Disk:
    """Refuses to write while it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        append = SegmentList.append

        def reluctant(segments: SegmentList, chunk: Any) -> None:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            append(segments, chunk)

        monkeypatch.setattr(SegmentList, "append", reluctant)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def test_consumers_go_on_when_there_is_room_again(tmp_path: Path, disk: Disk) -> None:
    stand = Stand(tmp_path, queue_memory_bytes=1000)
    queue = stand.queue()
    disk.full = True
    for number in range(10):
        queue.push(message(b"%d" % number))
    stand.kernel.write_batch.flush()
    assert [error.errno for error in stand.faults] == [errno.ENOSPC]

    consumer = Client(queue).request()
    consumer.request()
    puller = Client(queue, pull=True).request(1)
    assert consumer.ear.bodies == [b"0", b"1", b"2"], "what is in memory"
    assert (puller.ear.bodies, queue.ready) == ([], 7)

    disk.full = False
    await consumer.ear.until(lambda: len(consumer.ear.bodies) == 10)
    assert consumer.ear.bodies == [b"%d" % number for number in range(10)]
    assert (queue.ready, queue.ready_bytes, queue.unacknowledged) == (0, 0, 10)
    await stand.close()


async def test_a_purge_of_what_cannot_be_read_is_a_purge(tmp_path: Path, disk: Disk) -> None:
    stand = Stand(tmp_path, queue_memory_bytes=1000)
    queue = stand.queue()
    disk.full = True
    for number in range(10):
        queue.push(message(b"%d" % number))
    assert (queue.purge(), queue.ready) == (10, 0)
    disk.full = False
    queue.push(message(b"new"))
    assert Client(queue).request().ear.bodies == [b"new"]
    await stand.close()
