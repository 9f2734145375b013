"""One run of one pump at one task, and what is read from it.

* *post*: from the start of the command to its end, without what a post of a single file takes: the
  time Python and the connection need is not a rate.
* *file*, *http*: the queue is full when the subscriber starts. When each file got its name is read
  from the file system, so that looking disturbs nobody: the rate is from the first to the last.
* *watch*: a file is moved into the tree now and then; until its post is at a consumer.

CPU time is user and system time of the pump's own processes. Nothing is deleted before the end:
for five minutes ext4 passes over the place of every deleted file, one by one, whenever a file is
made, which is a cost of whoever measured before.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from benchmarks.errors import PeerFailed, WrongDelivery
from benchmarks.pump.grounds import Ground
from benchmarks.pump.programs import Feed, Penstock, Program
from benchmarks.usage import usage_of
from penstock.client import MessageReceiver, connect

_SECONDS: Final = 300.0
_READY_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.25  #: more often, looking would take time from those looked at
#: Between two files that a watch is to see: longer than any of the others needs, but sr3.
_PAUSE_SECONDS: Final = 0.137


@dataclass(frozen=True, slots=True)
class Run:
    task: str
    program: str
    files: int
    rate: float = 0.0  #: files a second
    cpu_ms: float = 0.0  #: a file
    p50_ms: float = 0.0
    p95_ms: float = 0.0


def measure_post(program: Program, ground: Ground, feed: Feed, files: int) -> Run:
    asyncio.run(_hold(ground))
    single = ground.folder / "single"
    single.mkdir()
    (single / "one").write_bytes(b"one")
    once, once_cpu = _to_its_end(lambda: program.post(ground, Feed(single, feed.base_url)))
    asyncio.run(_taken(ground, 1))
    wall, cpu = _to_its_end(lambda: program.post(ground, feed))
    posted = asyncio.run(_taken(ground, files))
    if posted < files:
        raise WrongDelivery(f"{program.name} announced {posted} of {files} files")
    return Run("post", program.name, files, files / (wall - once), (cpu - once_cpu) / files * 1e3)


def measure_fetch(task: str, program: Program, ground: Ground, feed: Feed, files: int) -> Run:
    asyncio.run(_hold(ground))
    _to_its_end(lambda: Penstock().post(ground, feed))
    target = ground.folder / "target"
    child = program.subscribe(ground, target)
    try:
        _until(lambda: _named(target) > 0, child, ground)
        begun, before = _named(target), usage_of([child.pid]).cpu_seconds
        _until(lambda: _named(target) >= files, child, ground)
        spent = usage_of([child.pid]).cpu_seconds - before
        rate = _rate(target, files)
    finally:
        child.kill()
        child.wait()
    _compare(feed.folder, target)
    return Run(task, program.name, files, rate, spent / max(1, files - begun) * 1e3)


def measure_watch(program: Program, ground: Ground, files: int) -> Run:
    folder = ground.folder / "watched"
    folder.mkdir()
    child = program.watch(ground, Feed(folder, "file:/"))
    try:
        latencies = asyncio.run(_latencies(ground, folder, files, child))
    finally:
        child.kill()
        child.wait()
    cuts = quantiles(latencies, n=20)
    return Run("watch", program.name, files, p50_ms=median(latencies) * 1e3, p95_ms=cuts[-1] * 1e3)


async def _latencies(
    ground: Ground, folder: Path, files: int, child: subprocess.Popen[bytes]
) -> list[float]:
    aside = ground.folder / "aside"
    aside.mkdir()
    async with connect(ground.url) as fabric:
        async with fabric.subscribe("#", exchange=ground.exchange) as inflow:
            await _until_watched(inflow, aside, folder, child)
            begun: dict[str, float] = {}
            heard: dict[str, float] = {}
            async with asyncio.TaskGroup() as group, asyncio.timeout(_SECONDS):
                group.create_task(_listen(inflow, heard, files))
                for number in range(files):
                    await asyncio.sleep(_PAUSE_SECONDS)
                    name = f"f{number:04d}"
                    (aside / name).write_bytes(os.urandom(1024))
                    begun[name] = time.monotonic()
                    (aside / name).rename(folder / name)
    return [heard[name] - begun[name] for name in begun]


async def _listen(inflow: MessageReceiver, heard: dict[str, float], files: int) -> None:
    while len(heard) < files:
        message = await inflow.receive()
        name = message.text.split(" ")[2].rpartition("/")[2]
        if name.startswith("f"):
            heard.setdefault(name, time.monotonic())


async def _until_watched(
    inflow: MessageReceiver, aside: Path, folder: Path, child: subprocess.Popen[bytes]
) -> None:
    """Move files in until one is seen: the watch stands then."""
    deadline = time.monotonic() + _READY_SECONDS
    for number in range(10_000):
        if time.monotonic() > deadline or child.poll() is not None:
            raise PeerFailed("the watch sees nothing")
        (aside / "probe").write_bytes(b"probe")
        (aside / "probe").rename(folder / f"probe{number}")
        try:
            async with asyncio.timeout(0.5):
                await inflow.receive()
                return
        except TimeoutError:
            continue


async def _hold(ground: Ground) -> None:
    """A queue that keeps what is announced."""
    async with connect(ground.url) as fabric:
        inflow = fabric.subscribe("v02.post.#", name=ground.queue, exchange=ground.exchange)
        await inflow.open()
        await inflow.close()


async def _taken(ground: Ground, files: int) -> int:
    """How many files were announced, up to so many; the queue is empty then."""
    names: set[str] = set()
    async with connect(ground.url) as fabric:
        inflow = fabric.subscribe("v02.post.#", name=ground.queue, exchange=ground.exchange)
        async with inflow:
            while len(names) < files:
                try:
                    async with asyncio.timeout(5.0):
                        message = await inflow.receive()
                except TimeoutError:
                    break
                # sr3 announces directories as well.
                if message.headers.get("sum", "")[:1] not in ("m", "R"):
                    names.add(message.text.split(" ")[2])
                await message.ack()
    return len(names)


def _to_its_end(start: Callable[[], subprocess.Popen[bytes]]) -> tuple[float, float]:
    """Seconds on the clock, and of the processor."""
    before, begun = _children(), time.monotonic()
    child = start()
    try:
        status = child.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        raise PeerFailed(f"{child.args!r} does not end") from None
    wall = time.monotonic() - begun
    if status:
        raise PeerFailed(f"{child.args!r} ended with {status}")
    return wall, _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _until(true: Callable[[], bool], child: subprocess.Popen[bytes], ground: Ground) -> None:
    deadline = time.monotonic() + _SECONDS
    while not true():
        if child.poll() is not None or time.monotonic() > deadline:
            words = (ground.folder / "log").read_text(errors="replace")[-1500:]
            raise PeerFailed(f"not all files arrive: {words}")
        time.sleep(_LOOK_SECONDS)


def _named(folder: Path) -> int:
    """How many files have their names."""
    return sum(
        1
        for _, _, names in os.walk(folder)
        for name in names
        if not name.endswith(".tmp") and not name.startswith(".")
    )


def _rate(folder: Path, files: int) -> float:
    """By when the files got their names."""
    moments = sorted(path.stat().st_ctime_ns for path in folder.rglob("f*") if path.is_file())
    return (files - 1) / (moments[-1] - moments[0]) * 1e9


def _compare(there: Path, here: Path) -> None:
    for path in there.rglob("f*"):
        copy = here / path.relative_to(there)
        if not copy.exists():  # a file: URL leads to the whole path
            copy = here / str(path).lstrip("/")
        if copy.read_bytes() != path.read_bytes():
            raise WrongDelivery(f"{copy} is not {path}")
