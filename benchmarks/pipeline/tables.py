"""The chapter of the page: what was measured, how, and the model of what was not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from benchmarks.harness.machine import Machine
from benchmarks.pipeline.catchup import CaughtUp
from benchmarks.pipeline.engines import Took
from benchmarks.pipeline.live import Lived

_LIVE: Final = """## Live

A report of each of {sensors:,} sensors every {interval:g} s, {rate:,.0f} a second, each sensor the
only one of its hive, for {seconds:g} s. From the moment the broker took a report in until a
subscriber held the hive's new figure, which is after the commit of `hive_status` by the way back
through the broker."""
_BACKLOG: Final = """## Backlog

A fleet of 2,000 sensors at 1,116 hives with its usual troubles, 757,000 messages a day, waits in a
stream; the flow takes it through connector, bronze, silver and gold until nothing is left. Seconds
are the clock's, of everything; processor time is of all processes, per report; *load* is how many
processes wanted the processors at the end, others' included: with more than there are cores, judge
by processor time. What cores could do is their number over the processor time a report takes, less
what waits for one another."""
_ENGINES: Final = """## The same traffic in DuckDB and Polars

Entries and exits by hive and hour from the raw reports in bronze's files, best of three, on all
cores; the three tables are equal. The flow's step also writes silver, knows all kinds of
messages and troubles, and goes on from batch to batch; the other two run the rule anybody would
write, once, in one process. Who wants one figure from files at hand is better served by them."""


@dataclass(slots=True)
class Found:
    """What was measured."""

    lived: Lived | None = None
    caught_up: list[CaughtUp] = field(default_factory=list)
    took: list[Took] = field(default_factory=list)


def chapter(command: str, date: str, machine: Machine, master: str, found: Found) -> str:
    memory = round(machine.memory_bytes / 1e9)
    where = f"{machine.cores} cores of {machine.cpu}, {memory} GB · {machine.system}"
    lines = ["# The pipeline's benchmarks", "", "```", command, "```", ""]
    lines += [f"{date} · {where} · {machine.python} · Spark on `{master}`.", ""]
    if found.lived is not None:
        lines += [*_lived(found.lived), ""]
    if found.caught_up:
        lines += [*_caught_up(found.caught_up), ""]
    if found.took:
        lines += [*_took(found.took), ""]
    return "\n".join(lines).strip() + "\n"


def _lived(lived: Lived) -> Iterator[str]:
    facts = {"sensors": lived.sensors, "interval": lived.interval, "seconds": lived.seconds}
    yield _LIVE.format(rate=lived.sensors / lived.interval, **facts)
    yield ""
    heads = ("figures", "p50 s", "p95 s", "p99 s", "max s", "load")
    of = lived.latencies
    row = [f"{len(of):,}", *(f"{np.percentile(of, each):.2f}" for each in (50, 95, 99, 100))]
    yield from table(heads, [[*row, f"{lived.load:.1f}"]])


def _caught_up(runs: Sequence[CaughtUp]) -> Iterator[str]:
    yield _BACKLOG
    yield ""
    heads = (
        *("reports", "batches", "seconds", "reports/s", "µs of processor a report"),
        *("broker", "database", "Java", "Python", "load"),
    )
    rows = []
    for run in runs:
        parts = (run.spent.broker, run.spent.database, run.spent.spark, run.spent.python)
        rows.append(
            [
                *(f"{run.reports:,}", f"{run.batches}", f"{run.seconds:.1f}", f"{run.rate:,.0f}"),
                f"{run.micros:.1f}",
                *(f"{part / run.reports * 1e6:.1f}" for part in parts),
                f"{run.load:.1f}",
            ]
        )
    yield from table(heads, rows)
    if len(runs) > 1:
        yield ""
        yield _model(runs)


def _model(runs: Sequence[CaughtUp]) -> str:
    """Processor time as a beginning and so much a report, by the two largest runs."""
    small, large = sorted(runs, key=lambda run: run.reports)[-2:]
    each = (large.spent.total - small.spent.total) / (large.reports - small.reports)
    first = small.spent.total - each * small.reports
    model = (first + each * 10**8) / 10**8 * 1e6
    return (
        f"By the two largest: {first:.1f} s to begin with, and {each * 1e6:.2f} µs a report. A "
        "batch knows nothing of those before it but where sensors stand, and its hours; it "
        f"stays at that: 10⁸ reports would take {model:.1f} µs each."
    )


def _took(took: Sequence[Took]) -> Iterator[str]:
    yield _ENGINES
    yield ""
    rows = [
        [
            each.what,
            f"{each.reports:,}",
            f"{each.seconds:.2f}",
            f"{each.reports / each.seconds:,.0f}",
        ]
        for each in took
    ]
    yield from table(("what", "reports", "seconds", "reports/s"), rows)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"| --- |{' ---: |' * (len(heads) - 1)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
