"""`python -m benchmarks.content`: matching and reading, with the bars they are held to; then
equalities beside RabbitMQ (`headers.py`), and publications from broker to broker (`links.py`)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from random import Random
from time import thread_time
from typing import Annotated, Final

import typer

from benchmarks.content.headers import table as headers_table
from benchmarks.content.links import measure as carry
from benchmarks.content.links import table as links_table
from benchmarks.content.measuring import Figures, compiled_kernel, measure
from benchmarks.content.workloads import quotes
from benchmarks.harness.page import put_chapter
from penstock.content import format_message, parse_publication

Wanted = dict[str, dict[int, int]]

#: Events a second that are wanted of one core, by workload and subscriptions.
BARS: Final[Wanted] = {
    "W1": {10_000: 30_000, 100_000: 20_000, 1_000_000: 5_000},
    "W2": {10_000: 10_000, 100_000: 1_500, 1_000_000: 150},
}
#: And what is hoped for where inner loops are compiled.
GOALS: Final[Wanted] = {
    "W1": {10_000: 60_000, 100_000: 50_000, 1_000_000: 12_000},
    "W2": {10_000: 50_000, 100_000: 8_000, 1_000_000: 400},
}
PARSE_BAR: Final = 100_000
CHANGE_BAR: Final = 50_000
#: Publications of each kind that go from broker to broker.
_CARRIED: Final = 10_000
#: What PADRES does of W1, as measured elsewhere with its own matcher (Java, CPU time).
PADRES: Final = {10_000: 470, 100_000: 58}

_COLUMNS: Final = (
    *("workload", "subscriptions", "matches/event", "events/s", "bar", "with changes"),
    *("naive", "PADRES", "insert/s", "insert + remove/s"),
)
_ACCOUNT: Final = """# {title}

`{command}`, CPU time of one thread, matching only. The figure is the best third of batches of 200
events, because the machine has other load. W1: an equality on one of 1,000 symbols and one to three
ranges that match 30–90 % (nine of ten), or a range that matches 1 % and as many others. W2: two to
four ranges that match 5–50 %. Publications have eight attributes. *With changes*: with every event
one subscription is removed and one added. *Naive* tests all subscriptions; for some events of every
run its result is compared with the matcher's. PADRES' figures are those of its own matcher (Java),
measured elsewhere; the bars are 50 and 300 times as much.

{table}

Parsing of publications with eight attributes: {parsed:,.0f}/s (bar {bar:,}).
"""
_BESIDE: Final = """
Equalities only, through a broker (`python -m benchmarks.content.headers`): bindings with three
equalities each to one queue; CPU time of the broker.

{headers}

Between two brokers (`python -m benchmarks.content.links`): quotes with eight attributes from a
publisher at one broker to a subscriber at the other, all on one machine.

{links}
"""


def main(
    workloads: Annotated[str, typer.Option(help="Which, with commas between.")] = "W1,W2",
    sizes: Annotated[str, typer.Option(help="Subscriptions.")] = "10000,100000,1000000",
    seconds: Annotated[float, typer.Option(help="CPU time for each figure.")] = 2.0,
    with_c: Annotated[bool, typer.Option("--compiled", help="With inner loops in C.")] = False,
    brokers: Annotated[bool, typer.Option(help="Measure what goes through brokers, too.")] = True,
    markdown: Annotated[Path | None, typer.Option(help="A page to write the table to.")] = None,
) -> None:
    """Measure matching of every workload and size, and reading."""
    figures = []
    kernel = compiled_kernel() if with_c else None
    wanted = GOALS if with_c else BARS
    for workload in workloads.split(","):
        for size in sizes.split(","):
            one = measure(workload, int(size), seconds, kernel=kernel)
            figures.append(one)
            print(" | ".join(_row(one, wanted)), flush=True)
    parsed = parse_rate(seconds)
    account = _ACCOUNT.format(
        title="Content matching, compiled" if with_c else "Content matching",
        command=f"python -m benchmarks.content --sizes {sizes} --workloads {workloads}"
        + with_c * " --compiled",
        table=_table(figures, wanted),
        parsed=parsed,
        bar=PARSE_BAR,
    )
    if brokers:
        carried = [asyncio.run(carry(_CARRIED, durable)) for durable in (True, False)]
        account += _BESIDE.format(headers=headers_table(), links=links_table(carried))
    print(account)
    if markdown is not None:
        put_chapter(markdown, account)


def parse_rate(seconds: float) -> float:
    """Publications read a second."""
    now = datetime.now(UTC)
    texts = [format_message(quote) for quote in islice(quotes(Random(1)), 500)]
    best = spent = 0.0
    while spent < seconds:
        start = thread_time()
        for text in texts:
            parse_publication(text, lambda: now)
        taken = thread_time() - start
        spent += taken
        best = max(best, len(texts) / taken)
    return best


def _table(figures: list[Figures], wanted: Wanted) -> str:
    rows = [_row(one, wanted) for one in figures]
    lines = [_COLUMNS, ["---", *["--:"] * (len(_COLUMNS) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(one: Figures, wanted: Wanted) -> list[str]:
    bar = wanted[one.workload].get(one.subscriptions)
    padres = PADRES.get(one.subscriptions) if one.workload == "W1" else None
    return [
        one.workload,
        *(f"{one.subscriptions:,}", f"{one.matches:,.0f}", f"{one.rate:,.0f}"),
        f"{bar:,}" if bar else "",
        *(f"{one.rate_with_changes:,.0f}", f"{one.naive_rate:,.1f}"),
        f"{padres} (x{one.rate / padres:,.0f})" if padres else "",
        *(f"{one.inserted:,.0f}", f"{one.changed:,.0f}"),
    ]


if __name__ == "__main__":
    typer.run(main)
