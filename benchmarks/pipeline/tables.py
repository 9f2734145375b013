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
from benchmarks.pipeline.state_store import Stateful

_LIVE: Final = """## Live

Each of {sensors:,} sensors reports every {interval:g} s, {rate:,.0f} reports per second, one sensor
per hive, for {seconds:g} s. Latency is measured from the broker's receipt of a report until a
subscriber has the hive's new figure: after the commit of `hive_status` and the way back through the
broker. *MiB* is the memory of the pipeline's processes when they had most, as proportional set
size, *at* so many seconds after the first report; *nightly* is the process of forecasts or
analytics that ran then, with its Java and workers."""
_BACKLOG: Final = """## Backlog

A stream holds the messages of a fleet of 2,000 sensors at 1,116 hives with its usual faults,
757,000 messages per day. The flow processes it through connector, bronze, silver and gold until the
lag is zero. Seconds are wall time. CPU time is that of all processes, per report. *Load* is the
load average at the end, including other processes: above the number of cores, compare CPU time. The
upper limit of the rate is the number of cores divided by the CPU time per report."""
_CLUSTERS: Final = """## On clusters

The same backlog on one machine with executors in processes of their own: Spark's `local-cluster`
with two workers of one core, and a standalone master with two workers. *Driver* is the share of the
CPU time that the driver's Python and Java processes use. The work of the driver does not grow with
messages, so its share falls with the size of the backlog."""
_ENGINES: Final = """## The same traffic in DuckDB and Polars

Entries and exits by hive and hour from the raw reports in bronze's files, best of three, on all
cores. The three result tables are equal. The flow's step also writes silver, handles all message
types and faults, and continues from batch to batch. The other two run the simple rule once, in one
process. For one figure from existing files they are the better choice."""

_STATEFUL: Final = """## State between batches: shards and Spark's state store

The last totals of every sensor are needed for the next report. The flow divides messages and states
by shards of the key: a task reads the rows and the states of its shards, and there is no shuffle of
messages. Spark's own way is a shuffle by sensor and `transformWithState` with RocksDB. Both read
the same files of bronze in the same batches and give the same sums for every sensor. The figures
are those of the round with the least CPU time; the ways alternate."""


@dataclass(slots=True)
class Found:
    """What was measured."""

    lived: Lived | None = None
    caught_up: list[CaughtUp] = field(default_factory=list)
    took: list[Took] = field(default_factory=list)
    stateful: list[Stateful] = field(default_factory=list)
    clusters: list[CaughtUp] = field(default_factory=list)


def chapter(command: str, date: str, machine: Machine, master: str, found: Found) -> str:
    memory = round(machine.memory_bytes / 1e9)
    where = f"{machine.cores} cores of {machine.cpu}, {memory} GB · {machine.system}"
    lines = ["# The pipeline's benchmarks", "", "```", command, "```", ""]
    lines += [f"{date} · {where} · {machine.python} · Spark on `{master}`.", ""]
    if found.lived is not None:
        lines += [*_lived(found.lived), ""]
    if found.caught_up:
        lines += [*_caught_up(found.caught_up), ""]
    if found.clusters:
        lines += [*_clusters(found.clusters), ""]
    if found.stateful:
        lines += [*_stateful(found.stateful), ""]
    if found.took:
        lines += [*_took(found.took), ""]
    return "\n".join(lines).strip() + "\n"


def _lived(lived: Lived) -> Iterator[str]:
    facts = {"sensors": lived.sensors, "interval": lived.interval, "seconds": lived.seconds}
    yield _LIVE.format(rate=lived.sensors / lived.interval, **facts)
    yield ""
    heads = (
        *("figures", "p50 s", "p95 s", "p99 s", "max s"),
        *("MiB", "Java", "driver", "workers", "nightly", "at", "load"),
    )
    of = lived.latencies
    row = [f"{len(of):,}", *(f"{np.percentile(of, each):.2f}" for each in (50, 95, 99, 100))]
    memory = lived.memory
    parts = (memory.java, memory.driver, memory.workers, memory.nightly)
    for part in (memory.total, *parts):
        row.append(f"{part / 2**20:,.0f}")
    yield from table(heads, [[*row, f"{memory.at:.0f}", f"{lived.load:.1f}"]])


def _caught_up(runs: Sequence[CaughtUp]) -> Iterator[str]:
    yield _BACKLOG
    yield ""
    heads = (
        *("reports", "batches", "seconds", "reports/s", "CPU µs per report"),
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


def _clusters(runs: Sequence[CaughtUp]) -> Iterator[str]:
    yield _CLUSTERS
    yield ""
    rows = []
    for run in runs:
        parts = (run.spent.broker, run.spent.database, run.spent.spark, run.spent.python)
        local = run.master.startswith("local[")
        share = "" if local else f"{100 * run.spent.driver / run.spent.total:.1f} %"
        rows.append(
            [
                f"`{run.master.partition('//')[0]}`",
                *(f"{run.reports:,}", f"{run.seconds:.1f}", f"{run.micros:.1f}"),
                *(f"{part / run.reports * 1e6:.1f}" for part in parts),
                *(share, f"{run.load:.1f}"),
            ]
        )
    heads = (
        *("master", "reports", "seconds", "CPU µs per report"),
        *("broker", "database", "Java", "Python", "driver", "load"),
    )
    yield from table(heads, rows)


def _model(runs: Sequence[CaughtUp]) -> str:
    """Processor time as a beginning and so much a report, by the two largest runs."""
    small, large = sorted(runs, key=lambda run: run.reports)[-2:]
    each = (large.spent.total - small.spent.total) / (large.reports - small.reports)
    first = small.spent.total - each * small.reports
    model = (first + each * 10**8) / 10**8 * 1e6
    return (
        f"From the two largest runs: {first:.1f} s fixed cost and {each * 1e6:.2f} µs per report. "
        "The state that a batch reads does not grow with the number of batches, so "
        f"10⁸ reports would take {model:.1f} µs each."
    )


def _stateful(ways: Sequence[Stateful]) -> Iterator[str]:
    yield _STATEFUL
    yield ""
    rows = [
        [
            each.what,
            *(f"{each.reports:,}", f"{each.batches}", f"{each.seconds:.1f}"),
            f"{each.cpu_seconds / each.reports * 1e6:.1f}",
        ]
        for each in ways
    ]
    yield from table(("way", "reports", "batches", "seconds", "CPU µs per report"), rows)


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
