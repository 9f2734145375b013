"""`python -m benchmarks.pipeline`: from reports to figures; live, from a backlog, beside others."""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from rich.console import Console

from benchmarks.harness import command
from benchmarks.harness.machine import this_machine
from benchmarks.harness.page import put_chapter
from benchmarks.pipeline import catchup, clusters, engines, live, state_store, tables
from penstock_spark.flow import LARGEST_BATCH
from penstock_spark.session import flow_session

_CHOICES: Final = ("live", "backlog", "engines", "state", "clusters")
_SIZES: Final = "100000,1000000,10000000"
#: Between which states are kept, when ways to keep them are compared.
_STATE_BATCHES: Final = 5
#: What `--quick` runs with: all of it, and too little of it for a figure.
_QUICK: Final = {"sizes": "5000", "sensors": 50, "seconds": 3.0, "interval": 1.0, "warm": 0.0}


def main(
    scenario: Annotated[
        str, typer.Option(help=f"Comma-separated: {', '.join(_CHOICES)}; or all.")
    ] = "all",
    sizes: Annotated[str, typer.Option(help="Reports of the backlogs.")] = _SIZES,
    sensors: Annotated[int, typer.Option(min=1, help="How many report.")] = catchup.SENSORS,
    seconds: Annotated[float, typer.Option(min=1.0, help="How long live reports come.")] = 60.0,
    interval: Annotated[float, typer.Option(help="From one report of a sensor to the next.")] = 10,
    most: Annotated[int, typer.Option(min=1, help="Reports in a batch.")] = LARGEST_BATCH,
    master: Annotated[str, typer.Option(help="Spark's.")] = "local[2]",
    quick: command.Quick = False,
    markdown: command.Markdown = None,
) -> None:
    """Measure how soon reports are figures, and how fast a backlog becomes some."""
    wanted = command.names(scenario, _CHOICES, "--scenario")
    warm = live.WARM_SECONDS
    if quick:
        sizes, sensors = str(_QUICK["sizes"]), int(str(_QUICK["sensors"]))
        seconds, interval, warm = (float(str(_QUICK[n])) for n in ("seconds", "interval", "warm"))
    counts = [int(size) for size in sizes.split(",")]
    found = tables.Found()
    if "live" in wanted:
        found.lived = live.live(sensors, seconds, interval, warm, master)
    if {"backlog", "engines"} & set(wanted):
        with flow_session("benchmark", master) as spark:
            if "engines" in wanted:
                size = min(max(counts), 1_000_000)
                found.took = engines.compare(spark, size, sensors, rounds=1 if quick else 3)
            if "backlog" in wanted:
                catchup.catch_up(spark, min(counts), sensors, most)  # warms up
                for count in counts:
                    found.caught_up.append(catchup.catch_up(spark, count, sensors, most))
                    Console(stderr=True).print(str(found.caught_up[-1]), highlight=False)
    if "state" in wanted:
        size = min(max(counts), 1_000_000)
        with flow_session("benchmark", master, settings=state_store.SETTINGS) as spark:
            found.stateful = state_store.compare(
                spark, size, sensors, _STATE_BATCHES, rounds=1 if quick else 3
            )
    if "clusters" in wanted:
        found.clusters = clusters.compare(max(counts), sensors, most)
    run = shlex.join(["python", "-m", "benchmarks.pipeline", *sys.argv[1:]])
    chapter = tables.chapter(run, f"{datetime.now(UTC):%Y-%m-%d}", this_machine(), master, found)
    Console(width=120).print(chapter, markup=False, highlight=False)
    if markdown is not None:
        put_chapter(markdown, chapter)


if __name__ == "__main__":
    typer.run(main)
