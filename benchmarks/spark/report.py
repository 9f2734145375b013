"""The figures as tables, on the terminal and as a chapter of the page; the same cells in both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.harness.results import Results
from benchmarks.spark.rates import Rate

_HEADS: Final = ("way", "rows", "rows/s", "broker CPU-s/1M", "reader CPU-s/1M")
_WIDTH: Final = 110


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ways to read the same, and the one that the others are measured by."""

    title: str
    rates: Sequence[Rate]
    yardstick: str
    note: str = ""  #: what else is to be known of what was read

    @property
    def heads(self) -> tuple[str, ...]:
        return (*_HEADS, f"÷ {self.yardstick}")

    def cells(self) -> Iterator[tuple[str, ...]]:
        by = next(rate for rate in self.rates if rate.name == self.yardstick)
        for rate in self.rates:
            yield (
                rate.name,
                f"{rate.rows:,}",
                f"{rate.median:,.0f}",
                f"{rate.broker_cpu_per_million:.2f}",
                f"{rate.reader_cpu_per_million:.2f}",
                f"{rate.median / by.median:.2f}" if rate is not by else "",
            )


def show(comparisons: Sequence[Comparison]) -> None:
    console = Console()
    if not console.is_terminal:  # a file or a pipe has no width of its own
        console.width = _WIDTH
    for each in comparisons:
        table = Table(title=each.title, box=box.SIMPLE_HEAD, title_justify="left")
        for head in each.heads:
            table.add_column(head, justify="left" if head == "way" else "right", no_wrap=True)
        for row in each.cells():
            table.add_row(*row)
        console.print(table)
        if each.note:
            console.print(f"{each.note}\n")


def markdown(
    results: Results,
    method: str,
    comparisons: Sequence[Comparison],
    title: str = "Spark's benchmarks",
) -> str:
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    lines = [
        f"# {title}",
        *("", "```", results.command, "```", ""),
        f"{results.date} · {machine.cores} cores of {machine.cpu}, "
        f"{machine.memory_bytes / 1e9:.0f} GB · {machine.system} · {machine.python} · {versions}.",
        *("", method),
    ]
    for each in comparisons:
        rule = ["---", *["---:"] * (len(each.heads) - 1)]
        rows = (each.heads, rule, *each.cells())
        lines += ["", f"## {each.title}", ""]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        lines += ["", each.note] if each.note else []
    return "\n".join(lines) + "\n"


def to_json(results: Results, comparisons: Sequence[Comparison]) -> str:
    """Every round, and what the medians are."""
    document = {
        "command": results.command,
        "date": results.date,
        "machine": asdict(results.machine),
        "versions": results.versions,
        "ways": [
            {"comparison": each.title, **asdict(rate), "rate": rate.median}
            for each in comparisons
            for rate in each.rates
        ],
    }
    return json.dumps(document, indent=2) + "\n"
