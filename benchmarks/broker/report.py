"""How results are shown: as tables on the terminal and as a page of Markdown, with the same cells.

A ratio is the first broker's figure over the second's: a rate above 1 and a CPU time below 1 are
in the first one's favour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.broker.memory import Footprint
from benchmarks.broker.results import Results, Summary
from benchmarks.broker.scenarios import SCENARIOS

_LOAD_COLUMNS = (
    "scenario",
    "broker",
    "msg/s",
    "broker\nCPU-s/1M",
    "generator\nCPU-s/1M",
    "p50 ms",
    "p99 ms",
    "RSS MB",
)
_MEMORY_COLUMNS = ("broker", "idle RSS MB", "connections", "RSS MB with them", "kB a connection")

_METHOD = (
    "Medians over rounds in which the brokers take turns; brokers and generator share the machine "
    "and speak over loopback. The generator writes prebuilt frames, 100 messages a write, at most "
    "20,000 ahead of the slowest consumer, and checks every octet that arrives: count, order, "
    "content. Rates and CPU seconds are per message published; CPU time is user and system time of "
    "all processes of the broker. Latency under load runs from before a batch's write to the "
    "arrival of its last message, so it is mostly the wait behind the window; in (e) it is one "
    "message's way. The generator's own CPU shows how far it is from being the limit itself. RSS "
    "is read at the end of a run. A ratio is the first broker's figure over the second's."
)


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
            left = column in ("scenario", "broker")
            table.add_column(column, justify="left" if left else "right", no_wrap=True)
        for index, row in enumerate(grid.rows):
            table.add_row(*row, end_section=index in grid.rules)
        console.print(table)


def markdown(results: Results) -> str:
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    lines = [
        "# The broker's benchmarks",
        "",
        "```",
        results.command,
        "```",
        "",
        f"{results.date} · {machine.cores} cores of {machine.cpu}, "
        f"{machine.memory_bytes / 1e9:.0f} GB · {machine.system} · {machine.python} · {versions}.",
        "",
        _METHOD,
    ]
    for title, grid in _grids(results):
        lines += ["", f"## {title}", "", *_markdown_table(grid)]
    if results.runs:
        lines += ["", "Scenarios:", ""]
        lines += [f"* **{name}**: {SCENARIOS[name].title}" for name in results.scenarios()]
    return "\n".join(lines) + "\n"


def _grids(results: Results) -> Iterable[tuple[str, _Grid]]:
    if results.runs:
        yield "Load", _load(results)
    if results.footprints:
        yield "Memory", _memory(results.footprints)


def _load(results: Results) -> _Grid:
    rows: list[tuple[str, ...]] = []
    rules = set()
    for scenario in results.scenarios():
        summaries = results.summaries(scenario)
        rows += [_summary_row(each) for each in summaries]
        if len(summaries) == 2:
            rows.append(_ratio_row(*summaries))
        rules.add(len(rows) - 1)
    return _Grid(_LOAD_COLUMNS, rows, frozenset(rules))


def _summary_row(each: Summary) -> tuple[str, ...]:
    return (
        each.scenario,
        each.peer,
        f"{each.rate:,.0f}",
        f"{each.broker_cpu_per_million:.2f}",
        f"{each.generator_cpu_per_million:.2f}",
        _milliseconds(each.latency_p50),
        _milliseconds(each.latency_p99),
        f"{each.rss_bytes / 1e6:.0f}",
    )


def _ratio_row(first: Summary, second: Summary) -> tuple[str, ...]:
    return (
        first.scenario,
        "ratio",
        _ratio(first.rate, second.rate),
        _ratio(first.broker_cpu_per_million, second.broker_cpu_per_million),
        "",
        _ratio(first.latency_p50, second.latency_p50),
        _ratio(first.latency_p99, second.latency_p99),
        _ratio(first.rss_bytes, second.rss_bytes),
    )


def _memory(footprints: Sequence[Footprint]) -> _Grid:
    rows: list[tuple[str, ...]] = [
        (
            each.peer,
            f"{each.idle_bytes / 1e6:.0f}",
            f"{each.connections:,}",
            f"{each.connected_bytes / 1e6:.0f}",
            f"{each.bytes_per_connection / 1e3:.1f}",
        )
        for each in footprints
    ]
    if len(footprints) == 2:
        first, second = footprints
        rows.append(
            (
                "ratio",
                _ratio(first.idle_bytes, second.idle_bytes),
                "",
                _ratio(first.connected_bytes, second.connected_bytes),
                _ratio(first.bytes_per_connection, second.bytes_per_connection),
            )
        )
    return _Grid(_MEMORY_COLUMNS, rows, frozenset())


def _milliseconds(seconds: float) -> str:
    digits = 3 if seconds < 1e-3 else 1 if seconds < 0.1 else 0
    return f"{seconds * 1e3:,.{digits}f}"


def _ratio(first: float, second: float) -> str:
    return f"{first / second:.2f}" if second else "–"


def _markdown_table(grid: _Grid) -> list[str]:
    rule = ["---" if column in ("scenario", "broker") else "---:" for column in grid.columns]
    heads = [column.replace("\n", " ") for column in grid.columns]
    return [f"| {' | '.join(cells)} |" for cells in (heads, rule, *grid.rows)]
