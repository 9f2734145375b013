"""How results are shown: as tables on the terminal and as Markdown, with the same cells.

A ratio is the first broker's figure over another's: a rate above 1 and a CPU time below 1 are in
the first one's favour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.harness.comparison import Comparison, Moved
from benchmarks.harness.memory import Footprint
from benchmarks.harness.results import Results, Summary

_LOAD_COLUMNS = (
    "scenario",
    "broker",
    "msg/s",
    "broker\nCPU-s/1M",
    "of 1M\ndelivered",
    "generator\nCPU-s/1M",
    "p50 ms",
    "p99 ms",
    "RSS MB",
)
_MEMORY_COLUMNS = ("broker", "idle RSS MB", "connections", "RSS MB with them", "kB a connection")
_MOVED_COLUMNS = ("scenario", "before", "now", "ratio", "verdict")
_LEFT = ("scenario", "broker", "verdict")


@dataclass(frozen=True, slots=True)
class Account:
    """What is said about the figures of a benchmark, beside the figures."""

    title: str
    method: str
    scenarios: Mapping[str, str]  #: what each name stands for


@dataclass(frozen=True, slots=True)
class _Grid:
    """Cells in rows; a rule below each row whose index is in `rules`."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    rules: frozenset[int]


def show(console: Console, results: Results) -> None:
    for title, grid in _grids(results):
        table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
        for column in grid.columns:
            table.add_column(column, justify="left" if column in _LEFT else "right", no_wrap=True)
        for index, row in enumerate(grid.rows):
            table.add_row(*row, end_section=index in grid.rules)
        console.print(table)


def show_comparison(console: Console, comparison: Comparison) -> None:
    table = Table(title=comparison.title, box=box.SIMPLE_HEAD, title_justify="left")
    for column in _MOVED_COLUMNS:
        table.add_column(column, justify="left" if column in _LEFT else "right")
    for row in comparison.rows:
        table.add_row(*_moved_row(row))
    console.print(table)


def markdown(results: Results, account: Account, comparison: Comparison | None = None) -> str:
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    lines = [
        f"# {account.title}",
        "",
        "```",
        results.command,
        "```",
        "",
        f"{results.date} · {machine.cores} cores of {machine.cpu}, "
        f"{machine.memory_bytes / 1e9:.0f} GB · {machine.system} · {machine.python} · {versions}.",
        "",
        account.method,
    ]
    for title, grid in _grids(results):
        lines += ["", f"## {title}", "", *_markdown_table(grid)]
    if comparison is not None:
        rows = [_moved_row(row) for row in comparison.rows]
        table = _markdown_table(_Grid(_MOVED_COLUMNS, rows, frozenset()))
        lines += ["", f"## {comparison.title}", "", *table]
    if results.runs:
        lines += ["", "Scenarios:", ""]
        lines += [f"* **{name}**: {account.scenarios[name]}" for name in results.scenarios()]
    return "\n".join(lines) + "\n"


def _grids(results: Results) -> Iterable[tuple[str, _Grid]]:
    if results.runs:
        yield "Load", _load(results)
    if results.footprints:
        yield "Memory", _memory(results)


def _load(results: Results) -> _Grid:
    rows: list[tuple[str, ...]] = []
    rules = set()
    for scenario in results.scenarios():
        first, *others = results.summaries(scenario)
        rows += [_summary_row(each) for each in (first, *others)]
        rows += [_ratio_row(first, other) for other in others]
        rules.add(len(rows) - 1)
    return _Grid(_LOAD_COLUMNS, rows, frozenset(rules))


def _summary_row(each: Summary) -> tuple[str, ...]:
    in_, out = each.broker_cpu_per_million, each.broker_cpu_per_million_deliveries
    return (
        each.scenario,
        each.peer,
        f"{each.rate:,.0f}",
        f"{in_:.2f}",
        f"{out:.2f}" if out != in_ else "",
        f"{each.generator_cpu_per_million:.2f}",
        _milliseconds(each.latency_p50),
        _milliseconds(each.latency_p99),
        f"{each.rss_bytes / 1e6:.0f}",
    )


def _ratio_row(first: Summary, other: Summary) -> tuple[str, ...]:
    return (
        first.scenario,
        f"÷ {other.peer}",
        _ratio(first.rate, other.rate),
        _ratio(first.broker_cpu_per_million, other.broker_cpu_per_million),
        "",
        "",
        _ratio(first.latency_p50, other.latency_p50),
        _ratio(first.latency_p99, other.latency_p99),
        _ratio(first.rss_bytes, other.rss_bytes),
    )


def _moved_row(row: Moved) -> tuple[str, ...]:
    return row.scenario, f"{row.before:.2f}", f"{row.now:.2f}", f"{row.ratio:.2f}", row.verdict


def _memory(results: Results) -> _Grid:
    rows: list[tuple[str, ...]] = []
    rules = set()
    for title in dict.fromkeys(each.title for each in results.footprints):
        first, *others = (each for each in results.footprints if each.title == title)
        rows += [_footprint_row(each) for each in (first, *others)]
        rows += [_memory_ratio_row(first, other) for other in others]
        rules.add(len(rows) - 1)
    return _Grid(_MEMORY_COLUMNS, rows, frozenset(rules))


def _footprint_row(each: Footprint) -> tuple[str, ...]:
    return (
        each.peer,
        f"{each.idle_bytes / 1e6:.0f}",
        f"{each.connections:,} {each.title}",
        f"{each.connected_bytes / 1e6:.0f}",
        f"{each.bytes_per_connection / 1e3:.1f}",
    )


def _memory_ratio_row(first: Footprint, other: Footprint) -> tuple[str, ...]:
    return (
        f"÷ {other.peer}",
        _ratio(first.idle_bytes, other.idle_bytes),
        "",
        _ratio(first.connected_bytes, other.connected_bytes),
        _ratio(first.bytes_per_connection, other.bytes_per_connection),
    )


def _milliseconds(seconds: float) -> str:
    digits = 3 if seconds < 1e-3 else 1 if seconds < 0.1 else 0
    return f"{seconds * 1e3:,.{digits}f}"


def _ratio(first: float, other: float) -> str:
    ratio = first / other if other else 0.0
    return f"{ratio:.{2 if ratio >= 0.1 else 3}f}" if ratio else "–"


def _markdown_table(grid: _Grid) -> list[str]:
    rule = ["---" if column in _LEFT else "---:" for column in grid.columns]
    heads = [column.replace("\n", " ") for column in grid.columns]
    return [f"| {' | '.join(cells)} |" for cells in (heads, rule, *grid.rows)]
