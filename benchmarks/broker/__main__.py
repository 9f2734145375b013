"""`python -m benchmarks.broker`: Penstock and RabbitMQ under the same load, side by side."""

from __future__ import annotations

import pstats
import shlex
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.broker import memory, report, rounds
from benchmarks.broker.machine import this_machine
from benchmarks.broker.results import Results
from benchmarks.broker.scenarios import SCENARIOS
from benchmarks.errors import PeerFailed, WrongDelivery
from benchmarks.peers import STARTERS, start_penstock

#: What `--quick` runs: enough to show that all works, too little for a figure.
_QUICK_MESSAGES = 2_000
_QUICK_CONNECTIONS = 100
_PROFILE_LINES = 40
_TABLE_WIDTH = 100

_CHOICES = [*SCENARIOS, "memory"]


def main(
    scenario: Annotated[
        str, typer.Option(help=f"Comma-separated: {', '.join(_CHOICES)}; or all.")
    ] = "all",
    peers: Annotated[
        str, typer.Option(help="Comma-separated; the ratio is the first's over the second's.")
    ] = "penstock,rabbitmq",
    rounds_: Annotated[int, typer.Option("--rounds", min=1, help="Counted rounds.")] = 3,
    messages: Annotated[
        int, typer.Option(min=0, help="Per run; 0: as many as the scenario wants.")
    ] = 0,
    connections: Annotated[
        int, typer.Option(min=1, help="Idle connections of the memory scenario.")
    ] = memory.CONNECTIONS,
    quick: Annotated[
        bool, typer.Option("--quick", help="A smoke test: one round, few messages.")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every run there.")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Write the tables there.")
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="Run Penstock under cProfile; its figures go there.")
    ] = None,
) -> None:
    """Measure brokers: rate, CPU, latency, memory; and check every message that arrives."""
    console = Console(stderr=True)
    wanted = _names(scenario, _CHOICES, "--scenario")
    names = _names(peers, list(STARTERS), "--peers")
    if quick:
        rounds_, messages = 1, messages or _QUICK_MESSAGES
        connections = min(connections, _QUICK_CONNECTIONS)
    starters = [STARTERS[name] for name in names]
    if profile is not None:
        starters = [
            partial(start_penstock, profile=profile) if start is start_penstock else start
            for start in starters
        ]
    chosen = [
        (SCENARIOS[name], messages or SCENARIOS[name].messages)
        for name in wanted
        if name in SCENARIOS
    ]
    command = shlex.join(["python", "-m", "benchmarks.broker", *sys.argv[1:]])
    results = Results(command, f"{datetime.now(UTC):%Y-%m-%d}", this_machine())
    try:
        with _bar(console) as bar:
            announce = partial(_announce, bar)
            if "memory" in wanted:
                memory.raise_descriptor_limit(connections)
                for peer, footprint in rounds.footprints(starters, connections, announce):
                    results.versions[peer.name] = peer.version
                    results.footprints.append(footprint)
            if chosen:
                for peer, run in rounds.loads(chosen, starters, rounds_, announce):
                    results.versions[peer.name] = peer.version
                    results.runs.append(run)
    except (PeerFailed, WrongDelivery, OSError) as error:
        console.print(f"[bold red]{type(error).__name__}[/]: ", end="")
        console.print(str(error), markup=False)
        raise typer.Exit(1) from error
    report.show(_wide_enough(Console()), results)
    if json_file is not None:
        json_file.write_text(results.to_json())
    if markdown_file is not None:
        markdown_file.write_text(report.markdown(results))
    if profile is not None:
        pstats.Stats(str(profile)).sort_stats("tottime").print_stats(_PROFILE_LINES)


def _names(given: str, allowed: list[str], option: str) -> list[str]:
    names = allowed if given == "all" else given.split(",")
    if unknown := [name for name in names if name not in allowed]:
        raise typer.BadParameter(
            f"{', '.join(unknown)}: not one of {', '.join(allowed)}", param_hint=option
        )
    return names


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


if __name__ == "__main__":
    typer.run(main)
