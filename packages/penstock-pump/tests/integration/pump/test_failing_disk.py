"""A disk of a subscriber that is full or read-only: nothing is lost, and it goes on by itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock_pump.components import post, subscribe
from tests.integration.pump.running import running, settings, tree, until
from tests.peers import Penstock
from tests.pump.servers import serving

DISK_BYTES = 8 << 20
FILES = 10
FILE_BYTES = 100_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    done = subprocess.run(["mount", *options], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Callable[[], object]:
    """Take all the space; returns what gives it back."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return ballast.unlink


def forbid(disk: Path) -> Callable[[], object]:
    """Make the disk read-only, in spite of files that are open; returns what ends it."""
    path = str(disk)
    subprocess.run(["mount", "--bind", path, path], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)
    return lambda: subprocess.run(["umount", "--lazy", path], check=True)


def write(folder: Path, portion: str) -> None:
    for number in range(FILES):
        path = folder / portion / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(FILE_BYTES))


@pytest.mark.parametrize("fail", [fill, forbid], ids=["full", "read-only"])
@pytest.mark.parametrize("also_state", [False, True], ids=["files", "files and state"])
async def test_files_come_when_the_disk_works_again(
    penstock: Penstock,
    name: str,
    tmp_path: Path,
    disk: Path,
    fail: Callable[[Path], Callable[[], object]],
    also_state: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    there, here = tmp_path / "there", disk / "here"
    state = (disk if also_state else tmp_path) / "state"
    with serving(there) as server:
        subscribing = settings(
            "subscribe", penstock.url, state, exchange=f"x{name}", directory=str(here), mirror=True
        )
        posting = settings(
            "post", penstock.url, tmp_path / "p", post_exchange=f"x{name}",
            post_base_url=server.url, post_base_dir=there, path=[there],
        )  # fmt: skip
        async with running(subscribe, subscribing):
            write(there, "before")
            await post(posting)
            await until(lambda: tree(here) == tree(there))

            mend = fail(disk)
            write(there, "meanwhile")
            await post(posting)
            await until(lambda: any(each in caplog.text for each in ("post failed", "retry store")))
            mend()

            await until(lambda: tree(here) == tree(there))
