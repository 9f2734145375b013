"""The figures as tables, for the terminal and for the page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median

from rich.console import Console
from rich.markdown import Markdown

from benchmarks.harness.results import Results
from benchmarks.jobs.measuring import Drain, Latency
from benchmarks.jobs.science import Build, Judged, Small
from benchmarks.jobs.waits import Waits

Rows = list[tuple[str, ...]]

TITLE = "Jobs' benchmarks"


@dataclass(slots=True)
class Figures:
    drains: list[Drain] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)
    waits: list[Waits] = field(default_factory=list)
    builds: list[Build] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)
    small: list[Small] = field(default_factory=list)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)


def show(figures: Figures) -> None:
    Console(width=110).print(Markdown("\n".join(_tables(figures))))


def chapter(results: Results, method: str, figures: Figures) -> str:
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    lines = [
        f"# {TITLE}",
        "",
        "```",
        results.command,
        "```",
        "",
        f"{results.date} · {machine.cores} cores of {machine.cpu}, "
        f"{machine.memory_bytes / 1e9:.0f} GB · {machine.system} · {machine.python} · {versions}.",
        "",
        method,
        *_tables(figures),
    ]
    return "\n".join(lines) + "\n"


def _tables(figures: Figures) -> Iterable[str]:
    if figures.drains:
        yield from _section("A backlog of jobs that do nothing", _drains(figures.drains))
    if figures.latencies:
        yield from _section("From send to start, on an idle worker", _latencies(figures.latencies))
    if figures.waits:
        yield from _section("Jobs that wait a second, a thousand at once", _waits(figures.waits))
    if figures.builds:
        yield from _section("Building models", _builds(figures.builds))
    if figures.judged:
        yield from _section("Judging simulated samples", _judged(figures.judged))
    if figures.small:
        yield from _section("A small prediction in a warm session", _small(figures.small))


def _section(title: str, rows: Rows) -> Iterable[str]:
    head, *others = rows
    yield ""
    yield f"## {title}"
    yield ""
    yield _line(head)
    yield _line(["---" if at < 1 else "---:" for at in range(len(head))])
    yield from map(_line, others)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _drains(runs: list[Drain]) -> Rows:
    rows: Rows = [("queue", "broker", "jobs", "jobs/s", "÷", "worker CPU ms", "broker CPU ms")]
    first: float | None = None
    for queue, broker in dict.fromkeys((run.queue, run.broker) for run in runs):
        same = [run for run in runs if (run.queue, run.broker) == (queue, broker)]
        rate = median(run.rate for run in same)
        first = first or rate
        rows.append(
            (
                queue,
                broker,
                f"{same[0].jobs:,}",
                f"{rate:,.0f}",
                f"{first / rate:.2f}",
                f"{1e3 * median(run.worker_cpu_per_job for run in same):.3f}",
                f"{1e3 * median(run.broker_cpu_per_job for run in same):.3f}",
            )
        )
    return rows


def _waits(runs: list[Waits]) -> Rows:
    rows: Rows = [("queue", "by", "jobs", "seconds", "at once", "worker CPU ms", "worker MB")]
    for queue in dict.fromkeys(run.queue for run in runs):
        same = [run for run in runs if run.queue == queue]
        jobs = same[0].jobs
        rows.append(
            (
                queue,
                same[0].how,
                f"{jobs:,}",
                f"{median(run.seconds for run in same):.2f}",
                f"{median(run.at_once for run in same):,.0f}",
                f"{1e3 * median(run.cpu for run in same) / jobs:.3f}",
                f"{median(run.memory for run in same) / 1e6:,.0f}",
            )
        )
    return rows


def _latencies(runs: list[Latency]) -> Rows:
    rows: Rows = [("queue", "broker", "jobs", "p50 ms", "p99 ms")]
    for queue, broker in dict.fromkeys((run.queue, run.broker) for run in runs):
        same = [run for run in runs if (run.queue, run.broker) == (queue, broker)]
        rows.append(
            (
                queue,
                broker,
                f"{same[0].jobs:,}",
                f"{1e3 * median(run.p50 for run in same):.2f}",
                f"{1e3 * median(run.p99 for run in same):.2f}",
            )
        )
    return rows


def _builds(runs: list[Build]) -> Rows:
    rows: Rows = [
        (
            "cores",
            "cells",
            "classifiers",
            "searches",
            "fits",
            "seconds",
            "fits/s",
            "CPU s",
            "efficiency",
            "by CPU",
        )
    ]
    first = runs[0]
    for run in runs:
        more = run.cores / first.cores
        rows.append(
            (
                str(run.cores),
                str(run.cells),
                str(run.classifiers),
                f"{run.searches} of {run.of}",
                f"{run.fits:,}",
                f"{run.seconds:.1f}",
                f"{run.rate:,.0f}",
                f"{run.cpu_seconds:.1f}",
                f"{first.seconds / run.seconds / more:.2f}",
                f"{first.cpu_seconds / run.cpu_seconds:.2f}",
            )
        )
    return rows


def _judged(runs: list[Judged]) -> Rows:
    rows: Rows = [("samples", "seconds", "samples/s", "CPU µs a sample", "RSS MB")]
    for run in runs:
        rows.append(
            (
                f"{run.samples:,}",
                f"{run.seconds:.1f}",
                f"{run.samples / run.seconds:,.0f}",
                f"{1e6 * run.cpu_seconds / run.samples:.1f}",
                f"{run.driver_rss_bytes / 1e6:,.0f}",
            )
        )
    return rows


def _small(runs: list[Small]) -> Rows:
    rows: Rows = [("samples", "runs", "median s")]
    rows += [(str(run.samples), str(run.runs), f"{run.seconds:.2f}") for run in runs]
    return rows
