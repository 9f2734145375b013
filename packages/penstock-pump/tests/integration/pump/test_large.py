"""Much of it: a tree of a million files, and a file larger than the pump it passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock_pump.components import post, sarra, subscribe
from tests.cli.command import environment
from tests.fixtures import NewPenstock
from tests.integration.pump.running import running, settings, until

MiB = 1 << 20
#: Runs a command and tells its most memory. A program that is started by a large one is counted
#: with that: this one is small.
MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def linked_tree(folder: Path, directories: int, files: int) -> None:
    """Names by the thousand for the price of a few files: a file may have 65,000 of them."""
    for number in range(directories):
        home = folder / f"d{number:04d}"
        home.mkdir(parents=True)
        first = home / "f0000"
        if number % 50:
            os.link(folder / f"d{number - number % 50:04d}" / "f0000", first)
        else:
            first.write_bytes(os.urandom(100))
        for other in range(1, files):
            os.link(first, home / f"f{other:04d}")


@pytest.mark.parametrize(
    ("directories", "files"),
    [
        pytest.param(10, 400, id="4000"),
        pytest.param(1000, 1000, id="1000000", marks=[pytest.mark.slow, pytest.mark.timeout(1500)]),
    ],
)
def test_a_tree_is_posted_in_memory_that_does_not_grow_with_it(
    directories: int, files: int, new_penstock: NewPenstock, tmp_path: Path
) -> None:
    broker = new_penstock()
    linked_tree(tmp_path / "there", directories, files)
    command = [
        *(sys.executable, "-c", MEASURED, sys.executable, "-m", "penstock", "pump", "post"),
        *("--broker", broker.url, "--post-exchange", "xs", "--base-url", "file:"),
        str(tmp_path / "there"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    said, most = done.stdout.splitlines()
    assert said == f"announced {directories * files}", done.stderr
    assert int(most) < 200 * MiB


def room_of(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:  # it has just gone, or got its name
        return 0


@pytest.mark.parametrize(
    ("size", "block", "room"),
    [
        pytest.param(40 * MiB, MiB, 4 * MiB, id="40MB"),
        pytest.param(
            20_000_000_000,
            128 * MiB,
            1_000_000_000,
            id="20GB",
            marks=[pytest.mark.slow, pytest.mark.timeout(3000)],
        ),
    ],
)
async def test_a_file_passes_a_pump_that_has_not_the_room_for_it(
    size: int, block: int, room: int, new_penstock: NewPenstock, tmp_path: Path
) -> None:
    broker = new_penstock()
    there, pump, here = tmp_path / "there", tmp_path / "pump", tmp_path / "here"
    for folder in (there, pump):
        folder.mkdir()
    marks = {place: os.urandom(1000) for place in range(0, size - 1000, size // 7)}
    with (there / "big").open("wb") as file:
        file.truncate(size)
        for place, data in marks.items():
            os.pwrite(file.fileno(), data, place)
    pumps = settings(
        "sarra", broker.url, tmp_path / "a", exchange="xs", post_exchange="xa",
        directory=str(pump), post_base_dir=pump, post_base_url=f"file:{pump}/", inplace=False,
        part_quota=room, part_quota_exchange="xr",
    )  # fmt: skip
    fetches = settings(
        "subscribe", broker.url, tmp_path / "s", exchange="xa", directory=str(here),
        report_exchange="xr",
    )  # fmt: skip
    posts = settings(
        "post", broker.url, tmp_path / "p", post_exchange="xs", post_base_url=f"file:{there}/",
        post_base_dir=there, path=[there], blocksize=block, sum="sha256",
    )  # fmt: skip
    most = 0

    def arrived() -> bool:
        nonlocal most
        most = max(most, sum(map(room_of, pump.iterdir())))
        return (here / "big").exists()

    async with running(subscribe, fetches), running(sarra, pumps):
        posted = await post(posts)
        await until(arrived, seconds=2400.0)
        await until(lambda: not list(pump.iterdir()), seconds=600.0)
    assert posted.announced == -(-size // block)
    assert (here / "big").stat().st_size == size
    with (here / "big").open("rb") as found:
        assert all(os.pread(found.fileno(), 1000, place) == data for place, data in marks.items())
    assert 0 < most <= room + 64 * 1024
