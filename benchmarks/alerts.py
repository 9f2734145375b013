"""`python -m benchmarks.alerts`: figures matched with all thresholds people have, as they arrive.

Hives wander between empty and full. Definitions are spread over them, thresholds anywhere, a
hysteresis of five percent; each figure is matched with all definitions, and those that cross turn.
CPU time of one thread; once in every run the answer is compared with the obvious rule's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from time import thread_time
from typing import Annotated, Final

import typer

from benchmarks.harness.page import put_chapter
from penstock_hives.alerts.matcher import AlertMatcher, OccupancyReport
from penstock_hives.alerts.models import AlertDefinition, AlertKind, ThresholdUnit

_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
_COLUMNS: Final = ("definitions", "hives", "load/s", "figures/s", "crossings/figure", "turns/s")
_ACCOUNT: Final = """# Alerts

`{command}`, CPU time of one thread. Every figure of a hive is matched with all definitions, those
that cross their threshold turn to wait for the way back. *Load*: definitions put in the table.
*Turns*: definitions that cross, when all figures of a run are such leaps that many do.

{table}
"""


@dataclass(frozen=True, slots=True)
class Measured:
    definitions: int
    hives: int
    load: float
    figures: float
    crossings: float
    turns: float

    def row(self) -> tuple[str, ...]:
        return (
            f"{self.definitions:,}",
            f"{self.hives:,}",
            f"{self.load:,.0f}",
            f"{self.figures:,.0f}",
            f"{self.crossings:.2f}",
            f"{self.turns:,.0f}",
        )


def main(
    sizes: Annotated[str, typer.Option(help="Definitions.")] = "10000,100000",
    hives: Annotated[str, typer.Option(help="Hives they are spread over.")] = "1,50,1000",
    seconds: Annotated[float, typer.Option(help="CPU time for each figure.")] = 2.0,
    markdown: Annotated[Path | None, typer.Option(help="A page to write the table to.")] = None,
) -> None:
    """Measure every size and spread."""
    measured = []
    for size in sizes.split(","):
        for count in hives.split(","):
            one = measure(int(size), int(count), seconds)
            measured.append(one)
            print(" | ".join(one.row()), flush=True)
    if markdown is not None:
        head = f"| {' | '.join(_COLUMNS)} |\n|{'--:|' * len(_COLUMNS)}\n"
        table = head + "\n".join(f"| {' | '.join(one.row())} |" for one in measured)
        put_chapter(markdown, _ACCOUNT.format(command="python -m benchmarks.alerts", table=table))


def measure(size: int, hives: int, seconds: float) -> Measured:
    chance = Random(size + hives)
    definitions = [
        AlertDefinition(
            number,
            number,
            chance.choice((AlertKind.OCCUPANCY_ABOVE, AlertKind.OCCUPANCY_BELOW)),
            chance.randrange(hives),
            float(chance.randrange(5, 100)),
            ThresholdUnit.PERCENT,
            5.0,
        )
        for number in range(size)
    ]
    table = AlertMatcher()
    began = thread_time()
    for definition in definitions:
        table.add(definition)
    load = size / (thread_time() - began)
    levels = [50.0] * hives
    for hive in range(hives):  # those that are met at once have their turn before it counts
        _turn(table, _figure(hive, levels[hive], 0))
    check(table, definitions, levels, chance)
    figures, crossings = _walk(table, levels, chance, seconds, 2.0)
    turned, turns = _walk(table, levels, chance, seconds, 60.0)
    return Measured(size, hives, load, figures, crossings, turned * turns)


def _walk(
    table: AlertMatcher, levels: list[float], chance: Random, seconds: float, step: float
) -> tuple[float, float]:
    """Figures a second, and crossings of each."""
    done = crossed = 0
    began = thread_time()
    while (spent := thread_time() - began) < seconds:
        hive = chance.randrange(len(levels))
        levels[hive] = min(110.0, max(0.0, levels[hive] + chance.uniform(-step, step)))
        crossed += _turn(table, _figure(hive, levels[hive], done))
        done += 1
    return done / spent, crossed / done


def _turn(table: AlertMatcher, figure: OccupancyReport) -> int:
    crossings = table.crossings(figure)
    for crossing in crossings:
        table.toggle(crossing)
    return len(crossings)


def check(
    table: AlertMatcher, definitions: list[AlertDefinition], levels: list[float], chance: Random
) -> None:
    """After a leap to the top exactly those have fired that the obvious rule says."""
    hive = chance.randrange(len(levels))
    fired = {
        crossing.definition.id
        for crossing in table.crossings(_figure(hive, 105.0, 1))
        if crossing.fired
    }
    expected = {
        each.id
        for each in definitions
        if each.hive_id == hive
        and each.kind is AlertKind.OCCUPANCY_ABOVE
        and each.threshold is not None
        and levels[hive] < each.threshold
    }
    assert fired == expected, f"{len(fired)} fired, {len(expected)} should have"


def _figure(hive: int, percent: float, version: int) -> OccupancyReport:
    return OccupancyReport(hive, int(percent), percent, "busy", "good", _AT, version)


if __name__ == "__main__":
    typer.run(main)
