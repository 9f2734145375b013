"""`python -m benchmarks.content.links`: publications from one broker to another, over a link.

Two brokers with a link, a publisher at one and a subscriber at the other. What is measured is how
many publications a second arrive, and the CPU time that each broker spends on one: the first reads,
matches and queues it for its neighbour, the second takes it from the link and gives it to its
client. Durable ones are on disk at both before they are confirmed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Annotated, Final

import typer

from benchmarks.content.workloads import quotes
from benchmarks.errors import PeerFailed, WrongDelivery
from benchmarks.usage import usage_of
from penstock.client.padres import PadresClient
from penstock.content import format_message

#: Publications that are on their way to the first broker at a time.
_WINDOW: Final = 500
_SECONDS: Final = 120.0
_OFFER: Final = (
    "[class,eq,stock],[symbol,isPresent,''],[exchange,isPresent,''],[board,isPresent,''],"
    "[price,isPresent,0],[volume,isPresent,0],[high,isPresent,0],[low,isPresent,0],"
    "[change,isPresent,0]"
)


@dataclass(frozen=True, slots=True)
class LinkFigures:
    durable: bool
    rate: float  #: publications a second, from publisher to subscriber
    near: float  #: CPU seconds of the publisher's broker for each
    far: float  #: and of the subscriber's


@contextlib.asynccontextmanager
async def _broker(folder: Path, name: str, neighbour: str = "") -> AsyncIterator[tuple[str, int]]:
    """A broker's address and process id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"padres://127.0.0.1:{probe.getsockname()[1]}"
    penstock = [sys.executable, "-m", "penstock"]
    data = ["--data", str(folder / name)]
    add = [*penstock, "user", "add", "links", "--tag", "overlay", "--password-stdin", *data]
    await asyncio.to_thread(subprocess.run, add, input=b"links\n", check=True)
    command = [*penstock, "broker", *data]
    command += ["--listen", address, "--set", f"broker.overlay.id={name}"]
    command += ["--set", "broker.overlay.accept_links_from=B2"]
    if neighbour:
        neighbour = neighbour.replace("//", "//links:links@")
        command += ["--set", f"broker.overlay.neighbours={neighbour}"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(os.environ)
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_SECONDS):
            if b"ready" not in await process.stdout.readline():
                raise PeerFailed(f"broker {name} did not start")
        yield f"{address}/{name}", process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def measure(count: int, durable: bool, seed: int = 1) -> LinkFigures:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        async with (
            _broker(folder, "B1") as (near, near_pid),
            _broker(folder, "B2", near) as (far, far_pid),
            PadresClient(near) as publisher,
            PadresClient(far) as subscriber,
        ):
            await publisher.advertise(_OFFER)
            await subscriber.subscribe("[class,eq,stock]")
            texts = [format_message(one) for one in islice(quotes(Random(seed)), 1000)]
            await _linked(publisher, subscriber, texts[0])
            before = usage_of([near_pid]).cpu_seconds, usage_of([far_pid]).cpu_seconds
            begun = perf_counter()
            await _carry(publisher, subscriber, texts, count, durable)
            rate = count / (perf_counter() - begun)
            after = usage_of([near_pid]).cpu_seconds, usage_of([far_pid]).cpu_seconds
        return LinkFigures(
            durable, rate, (after[0] - before[0]) / count, (after[1] - before[1]) / count
        )


async def _linked(publisher: PadresClient, subscriber: PadresClient, text: str) -> None:
    """Returns when publications arrive, and none is under way any more."""
    async with asyncio.timeout(_SECONDS):
        while True:
            await publisher.publish(text)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await subscriber.receive()
                    break
        await publisher.publish("[class,stock],[symbol,'last']")
        while (await subscriber.receive()).attributes.get("symbol") != "last":
            pass


async def _carry(
    publisher: PadresClient, subscriber: PadresClient, texts: list[str], count: int, durable: bool
) -> None:
    async def say(number: int) -> None:
        await publisher.publish(texts[number % len(texts)], durable=durable)

    async def publish() -> None:
        for start in range(0, count, _WINDOW):
            await asyncio.gather(*map(say, range(start, min(start + _WINDOW, count))))

    async with asyncio.timeout(_SECONDS), asyncio.TaskGroup() as tasks:
        tasks.create_task(publish())
        for number in range(count):
            if (await subscriber.receive()).text.partition(";")[0] != _said(texts, number):
                raise WrongDelivery(f"publication {number} is not the one that was said")


def _said(texts: list[str], number: int) -> str:
    return texts[number % len(texts)].partition(";")[0]


def table(figures: list[LinkFigures]) -> str:
    lines = ["| publications | /s | CPU each, publisher's broker | subscriber's broker |"]
    lines.append("|---|--:|--:|--:|")
    for one in figures:
        kind = "durable" if one.durable else "transient"
        near, far = one.near * 1e6, one.far * 1e6
        lines.append(f"| {kind} | {one.rate:,.0f} | {near:,.0f} µs | {far:,.0f} µs |")
    return "\n".join(lines)


def main(count: Annotated[int, typer.Option(help="Publications of each kind.")] = 20_000) -> None:
    """Carry publications from broker to broker, and say what it cost."""
    print(table([asyncio.run(measure(count, durable)) for durable in (True, False)]))


if __name__ == "__main__":
    typer.run(main)
