"""Components running beside a test, and what a test waits for."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from penstock_pump.components import ComponentControl
from penstock_pump.config.settings import PumpSettings, settings_of

PATIENCE = 60.0

Component = Callable[..., Awaitable[None]]


def settings(component: str, broker: str, state: Path, **given: Any) -> PumpSettings:
    """Servers of tests are on loopback, and their files in temporary directories."""
    near = {"private_hosts": True, "file_directories": [tempfile.gettempdir()]}
    told = {"component": component, "broker": broker, "state": state, "durable": False}
    return settings_of({**told, **near, **given})


@asynccontextmanager
async def running(
    component: Component, told: PumpSettings, **options: Any
) -> AsyncIterator[ComponentControl]:
    """From the moment it is ready until the block is left; what it raises, the block raises."""
    control = ComponentControl()
    task = asyncio.ensure_future(component(told, control=control, **options))
    ready = asyncio.ensure_future(control.ready.wait())
    await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    if task.done():
        await task
    try:
        yield control
    finally:
        control.stop.set()
        async with asyncio.timeout(PATIENCE):
            await task


async def until(true: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """A look at the file system now and then: it has no event to wait for that is ours."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def tree(folder: Path) -> dict[str, tuple[str, int, str]]:
    """What is below a folder: kind, mode and content of each."""
    found = {}
    for path in sorted(folder.rglob("*")):
        try:
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode):
                content = os.fspath(path.readlink())
            elif stat.S_ISREG(status.st_mode):
                content = hashlib.md5(path.read_bytes()).hexdigest()
            else:
                continue
        except FileNotFoundError:  # it has just got its name
            continue
        mode = 0 if stat.S_ISLNK(status.st_mode) else stat.S_IMODE(status.st_mode)
        kind = str(stat.S_IFMT(status.st_mode))
        found[path.relative_to(folder).as_posix()] = (kind, mode, content)
    return found


def count(folder: Path) -> int:
    """How many files have their names."""
    return sum(1 for _, _, names in os.walk(folder) for name in names if not name.endswith(".tmp"))


def make_tree(folder: Path, files: int = 20) -> None:
    for number in range(files):
        path = folder / f"d{number % 3}" / "sub dir" / f"file {number}#.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"content {number}\n".encode() * (number + 1))
        path.chmod(0o640 if number % 2 else 0o644)
    (folder / "link").symlink_to("d0/sub dir/file 0#.txt")
    (folder / "empty").write_bytes(b"")
