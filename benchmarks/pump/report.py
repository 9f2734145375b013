"""The figures as tables, on the terminal and as a chapter of the page; the same cells in both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import median
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.harness.results import Results
from benchmarks.pump.measuring import Run

_HEADS: Final = ("task", "pump", "files", "files/s", "CPU ms/file", "p50 ms", "p95 ms")
_WIDTH: Final = 110


def cells(runs: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    """Medians of each pump at each task, and how the first one's compare with the others'."""
    for task in dict.fromkeys(run.task for run in runs):
        of_task = [run for run in runs if run.task == task]
        pumps = dict.fromkeys(run.program for run in of_task)
        medians = [_median([run for run in of_task if run.program == pump]) for pump in pumps]
        first, *others = medians
        for each in medians:
            yield (
                each.task,
                each.program,
                f"{each.files:,}",
                _figure(each.rate, 0),
                _figure(each.cpu_ms, 2),
                _figure(each.p50_ms, 0),
                _figure(each.p95_ms, 0),
            )
        for other in others:
            yield (
                task,
                f"÷ {other.program}",
                "",
                _ratio(first.rate, other.rate),
                _ratio(first.cpu_ms, other.cpu_ms),
                _ratio(first.p50_ms, other.p50_ms),
                _ratio(first.p95_ms, other.p95_ms),
            )


def show(broker: str, runs: Sequence[Run]) -> None:
    console = Console()
    if not console.is_terminal:  # a file or a pipe has no width of its own
        console.width = _WIDTH
    table = Table(title=f"Over {broker}", box=box.SIMPLE_HEAD, title_justify="left")
    for head in _HEADS:
        table.add_column(head, justify="left" if head in _HEADS[:2] else "right", no_wrap=True)
    for row in cells(runs):
        table.add_row(*row)
    console.print(table)


def markdown(results: Results, method: str, found: dict[str, list[Run]]) -> str:
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    lines = [
        "# The pump's benchmarks",
        *("", "```", results.command, "```", ""),
        f"{results.date} · {machine.cores} cores of {machine.cpu}, "
        f"{machine.memory_bytes / 1e9:.0f} GB · {machine.system} · {machine.python} · {versions}.",
        *("", method),
    ]
    for broker, runs in found.items():
        rule = ["---", "---", *["---:"] * (len(_HEADS) - 2)]
        lines += ["", f"## Files over {broker}", ""]
        lines += [f"| {' | '.join(row)} |" for row in (_HEADS, rule, *cells(runs))]
    return "\n".join(lines) + "\n"


def to_json(results: Results, found: dict[str, list[Run]]) -> str:
    document = {
        "command": results.command,
        "date": results.date,
        "machine": asdict(results.machine),
        "versions": results.versions,
        "runs": [
            {"broker": broker, **asdict(run)} for broker, runs in found.items() for run in runs
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _median(runs: Sequence[Run]) -> Run:
    return Run(
        runs[0].task,
        runs[0].program,
        runs[0].files,
        median(run.rate for run in runs),
        median(run.cpu_ms for run in runs),
        median(run.p50_ms for run in runs),
        median(run.p95_ms for run in runs),
    )


def _figure(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}" if value else ""


def _ratio(first: float, other: float) -> str:
    return f"{first / other:.2f}" if first and other else ""
