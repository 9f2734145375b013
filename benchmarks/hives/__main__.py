"""`python -m benchmarks.hives`: anonymous reads beside plain FastAPI, and open streams."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Final

import typer

from benchmarks.harness.page import put_chapter
from benchmarks.hives.engines import engine
from benchmarks.hives.streams import StreamFigures
from benchmarks.hives.streams import measure as measure_streams
from benchmarks.usage import usage_of

#: Requests a second and core that are wanted of the fast path, and what 2,000 streams may take.
BAR: Final = 30_000
STREAM_BAR_MB: Final = 100
NAMES: Final = {
    "fast": "fast path",
    "encoded": "FastAPI, encoded before",
    "plain": "FastAPI, response model",
}
_MB: Final = 1_000_000
_ACCOUNT: Final = """# Hives

`python -m benchmarks.hives`: `GET /v1/hives/N` of {hives:,} hives in turn, {bytes:,} bytes of JSON,
{connections} keep-alive connections to one worker, all with uvicorn's protocol. *Requests/s a core*
is based on the CPU time of the worker, which does not depend on other load. *Requests/s* is based
on the clock, with the generator on the same two cores. Medians of {rounds} rounds in which the
three alternate; the load average of the machine was {load:.1f}.

| | requests/s a core | bar | requests/s | p50 ms | p99 ms | worker CPU µs |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
{table}

Streams on one worker, two figures a second to each: **{streams:,} streams took {taken:.0f} MB**
(bar {bar}), {each:.0f} kB each, above the {before:.0f} MB of an idle worker. They cost
{cpu:.2f} CPU seconds per second, {per:.0f} µs per event.
"""


@dataclass(frozen=True, slots=True)
class Reads:
    requests: float  #: a second
    cpu: float  #: seconds for each
    p50: float
    p99: float


async def reads(name: str, connections: int, seconds: float) -> Reads:
    async with engine(name) as running:
        await _load(running.port, connections, min(1.0, seconds))  # pages are made, code is warm
        before = usage_of([running.worker])
        told = await _load(running.port, connections, seconds)
        after = usage_of([running.worker])
    count = told["requests"]
    spent = after.cpu_seconds - before.cpu_seconds
    return Reads(count / told["seconds"], spent / count, told["p50"], told["p99"])


async def _load(port: int, connections: int, seconds: float) -> dict[str, float]:
    generator = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.hives.load"),
        *map(str, (port, connections, seconds)),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await generator.communicate()
    found: dict[str, float] = json.loads(out)
    return found


def main(
    rounds: Annotated[int, typer.Option(help="Rounds of reads.")] = 3,
    seconds: Annotated[float, typer.Option(help="Of load, each.")] = 5.0,
    connections: Annotated[int, typer.Option(help="At a time.")] = 32,
    streams: Annotated[int, typer.Option(help="Open at a time.")] = 2000,
    markdown: Annotated[Path | None, typer.Option(help="A page to write to.")] = None,
) -> None:
    """Measure reads of each kind, then streams."""
    found: dict[str, list[Reads]] = {name: [] for name in NAMES}
    for _ in range(rounds):
        for name, kept in found.items():
            kept.append(asyncio.run(reads(name, connections, seconds)))
            print(name, kept[-1], flush=True)
    figures = asyncio.run(measure_streams(streams, seconds))
    print(figures, flush=True)
    account = _account(found, figures, rounds, connections)
    print(account)
    if markdown is not None:
        put_chapter(markdown, account)


def _account(
    found: dict[str, list[Reads]], figures: StreamFigures, rounds: int, connections: int
) -> str:
    from benchmarks.hives.applications import HIVES
    from benchmarks.hives.editions import edition
    from penstock_hives.encoding import encode_json

    taken = figures.bytes - figures.before_bytes
    return _ACCOUNT.format(
        hives=HIVES,
        bytes=len(encode_json(edition(1).hives.details[0])),
        connections=connections,
        rounds=rounds,
        load=os.getloadavg()[0],
        table="\n".join(_row(name, kept) for name, kept in found.items()),
        streams=figures.streams,
        taken=taken / _MB,
        bar=STREAM_BAR_MB,
        each=taken / figures.streams / 1000,
        before=figures.before_bytes / _MB,
        cpu=figures.cpu_seconds,
        per=1e6 * figures.cpu_seconds / max(1.0, figures.events * figures.streams),
    )


def _row(name: str, kept: list[Reads]) -> str:
    def middle(of: str) -> float:
        return float(median(getattr(each, of) for each in kept))

    cells = (
        NAMES[name],
        f"{1 / middle('cpu'):,.0f}",
        f"{BAR:,}" if name == "fast" else "",
        f"{middle('requests'):,.0f}",
        f"{1000 * middle('p50'):.2f}",
        f"{1000 * middle('p99'):.2f}",
        f"{1e6 * middle('cpu'):.0f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    typer.run(main)
