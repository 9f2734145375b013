"""Killed at any point: nothing that was synced is lost, nothing acknowledged comes back."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.log import AckFile, Committer, Log
from tests.broker.log import appender
from tests.broker.log.given import Disk, Listener, bodies, message


def run_and_kill(directory: Path, after_lines: int) -> tuple[int, int]:
    """Start an appender, kill it after it has said so much; what it said last."""
    command = [sys.executable, appender.__file__, str(directory)]
    synced = acked = -1
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for number, line in enumerate(child.stdout):
            what, _, value = line.decode().partition(" ")
            if what == "synced":
                synced = int(value)
            else:
                acked = int(value)
            if number == after_lines:
                child.kill()  # and read on: what it said before it died counts
    assert child.returncode == -9
    assert synced > 0
    return synced, acked


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_process_loses_nothing_it_said_was_safe(
    tmp_path: Path, idle: Committer, seed: int
) -> None:
    choice = random.Random(seed)
    for _ in range(3):  # the second and third go on from what the first left
        synced, acked = run_and_kill(tmp_path, choice.randrange(20, 600))
        log = Log(tmp_path / "log", idle, segment_bytes=200_000)
        assert log.next_offset >= synced
        assert log.corrupt == 0
        kept = [one.body for chunk in log.chunks(0, 1 << 60) for one in chunk.messages()]
        assert kept == [appender.body(offset) for offset in range(log.next_offset)]
        acks = AckFile(tmp_path / "acks", idle)
        assert acks.floor > acked
        assert acks.floor <= log.next_offset
        acks.close()
        log.close()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of one megabyte."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    with tempfile.TemporaryDirectory() as directory:
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("a tmpfs cannot be mounted here")
        try:
            yield Path(directory)
        finally:
            if subprocess.run(["umount", directory], check=False).returncode:
                subprocess.run(["umount", "--lazy", directory], check=True)  # leave no mount behind
                pytest.fail("files on the disk were left open")


async def test_a_disk_that_fills_up_and_is_freed(small_disk: Path) -> None:
    disk, listener = Disk(asyncio.get_running_loop()), Listener()
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(600_000))
    log = Log(small_disk / "log", disk.committer, segment_bytes=100_000)
    sent: list[bytes] = []
    while not disk.faults:
        sent.append(b"%06d" % len(sent) * 500)
        log.append(message(sent[-1]))
        disk.committer.wait(listener.channel(), len(sent))
        disk.committer.write()
    await listener.until(lambda: len(listener.confirmed) == log.written_offset)
    assert listener.confirmed == list(range(1, log.written_offset + 1))
    assert log.written_offset < len(sent)
    ballast.unlink()
    await listener.until(lambda: len(listener.confirmed) == len(sent))
    assert (len(disk.faults), disk.recoveries) == (1, 1)
    assert bodies(log) == sent
    log.close()
    await disk.committer.close()
    reports: list[str] = []
    again = Log(small_disk / "log", disk.committer, report=reports.append)
    assert (bodies(again), reports) == (sent, [])
    again.close()
