"""What the commands share: their options, the bar that shows how far they are, what they write."""

from __future__ import annotations

import pstats
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.errors import PeerFailed, WrongDelivery
from benchmarks.harness import report
from benchmarks.harness.comparison import compare, store
from benchmarks.harness.machine import this_machine
from benchmarks.harness.page import put_chapter
from benchmarks.harness.report import Account
from benchmarks.harness.results import Results
from benchmarks.harness.rounds import Announce
from benchmarks.peers import Starter, available

#: The value of `--peers` that chooses all peers of the machine.
PRESENT: Final = "present"
#: What `--quick` runs: enough to show that all works, too little for a figure.
QUICK_MESSAGES: Final = 2_000
QUICK_CONNECTIONS: Final = 100
_PROFILE_LINES: Final = 40
_TABLE_WIDTH: Final = 110

Rounds = Annotated[int, typer.Option("--rounds", min=1, help="Counted rounds.")]
Messages = Annotated[int, typer.Option(min=0, help="Per run; 0: as many as the scenario wants.")]
Connections = Annotated[int, typer.Option(min=1, help="Idle connections of the memory scenario.")]
Peers = Annotated[
    str,
    typer.Option(
        help="Comma-separated, or present: all that this machine has. Ratios are the first's over "
        "each other's."
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="A smoke test: one round, few messages.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write every run there.")]
Markdown = Annotated[
    Path | None, typer.Option("--markdown", help="Write the tables there, as a chapter.")
]
Store = Annotated[
    bool,
    typer.Option("--store", help="Store the figures as this release's, for later comparisons."),
]
Profile = Annotated[
    Path | None, typer.Option(help="Run Penstock under cProfile; its figures go there.")
]


def names(given: str, allowed: Sequence[str], option: str) -> list[str]:
    chosen = list(allowed) if given == "all" else given.split(",")
    if unknown := [name for name in chosen if name not in allowed]:
        raise typer.BadParameter(
            f"{', '.join(unknown)}: not one of {', '.join(allowed)}", param_hint=option
        )
    return chosen


def new_results(program: str) -> Results:
    command = shlex.join(["python", "-m", program, *sys.argv[1:]])
    return Results(command, f"{datetime.now(UTC):%Y-%m-%d}", this_machine())


@contextmanager
def measuring() -> Iterator[Announce]:
    """Shows what is being measured, and ends the program when a broker fails."""
    console = Console(stderr=True)
    try:
        with _bar(console) as bar:
            yield partial(_announce, bar)
    except (PeerFailed, WrongDelivery, OSError) as error:
        console.print(f"[bold red]{type(error).__name__}[/]: ", end="")
        console.print(str(error), markup=False)
        raise typer.Exit(1) from error


def chosen_peers(given: str, starters: Mapping[str, Starter]) -> list[Starter]:
    """Those that are named, or all that this machine has."""
    if given == PRESENT:
        return [start for name, start in starters.items() if available(name)]
    return [starters[name] for name in names(given, list(starters), "--peers")]


def publish(
    results: Results,
    account: Account,
    json: Path | None,
    page: Path | None,
    profile: Path | None,
    *,
    stored: bool,
) -> None:
    console = _wide_enough(Console())
    report.show(console, results)
    compared = None if profile is not None else compare(results)
    if compared is not None:
        report.show_comparison(console, compared)
    if stored:
        store(results)
    if json is not None:
        json.write_text(results.to_json())
    if page is not None:
        put_chapter(page, report.markdown(results, account, compared))
    if profile is not None:
        pstats.Stats(str(profile)).sort_stats("tottime").print_stats(_PROFILE_LINES)


def _wide_enough(console: Console) -> Console:
    """A file or a pipe has no width of its own; the tables shall not be cut for it."""
    if not console.is_terminal:
        console.width = _TABLE_WIDTH
    return console


def _bar(console: Console) -> Progress:
    """Drawn only when told to: a thread that redraws would disturb what is measured."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
    )


def _announce(bar: Progress, description: str, steps: int) -> Callable[[int], None]:
    for task in bar.task_ids:
        bar.remove_task(task)
    current = bar.add_task(description, total=steps)
    bar.refresh()

    def advance(completed: int) -> None:
        bar.update(current, completed=completed)
        bar.refresh()

    return advance
