"""`python -m benchmarks.accuracy`: the error of counting under all kinds of trouble, as a table."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer

from benchmarks.accuracy.scoring import MONTH_DAYS, SEEN, Score, score
from benchmarks.accuracy.troubles import TROUBLES
from benchmarks.harness.page import put_chapter

#: What is promised: events per sensor and month.
BOUND: Final = 4
_START: Final = datetime(2026, 3, 9, tzinfo=UTC)  # clocks change on the way
_COLUMNS: Final = (
    *("trouble", "sensors", "reports", "events", "lost by devices"),
    *("wraps", "unseen", "both at once", "restarts"),
    *("error", "p95", "max", "undecidable", f"≤ {BOUND}", "naive rule"),
)
_ACCOUNT: Final = """# Accuracy

The counts that the pipeline computes from a simulated fleet, compared with the fleet's own record:
`{command}`.

`error` is the difference between the sums of a sensor, in and out, and what the frames that arrived
imply, in events per sensor and month: mean, 95th percentile and maximum of all sensors. `lost by
devices` is not part of it: events that devices lost in a restart before they sent them, and events
that did not arrive. `unseen` are wraps during an outage at a point that was not known yet. `both at
once` are reports after which both totals have wrapped. The naive rule treats every decrease of a
total as a restart; it gets no duplicates, no late reports and no sensors that send events.

`undecidable` are sensors whose frames do not determine what happened: a total wrapped during an
outage, at an unknown point, and no wrap was observed since. Devices that wrap at different points,
and counted 12, 20 or 32 people more or fewer meanwhile, send the same bytes
(`packages/penstock-hives/tests/hives/occupancy/test_counter_wraps.py` shows it), so no rule can
decide. The pipeline assumes the point in the middle, flags the report, and corrects the sum when
the sensor's other total, a later wrap or `wrap_at` in its profile determines it. *≤ {bound}* is the
share of all other sensors that meet the bound individually.

{table}
"""


def main(
    days: Annotated[int, typer.Option(help="How long the fleet runs.")] = MONTH_DAYS,
    sensors: Annotated[int, typer.Option(help="How many sensors each fleet has.")] = 100,
    seed: Annotated[int, typer.Option(help="What else it depends on.")] = 1,
    markdown: Annotated[Path | None, typer.Option(help="A page to write the table to.")] = None,
) -> None:
    """Count a month of every kind of trouble, and compare with what really happened."""
    scores = []
    for trouble in TROUBLES:
        one = score(trouble, start=_START, days=days, sensors=sensors, seed=seed)
        scores.append(one)
        print(" | ".join(_row(one)), flush=True)
    table = _table(scores)
    print(table)
    if markdown is not None:
        command = f"python -m benchmarks.accuracy --days {days} --sensors {sensors} --seed {seed}"
        put_chapter(markdown, _ACCOUNT.format(command=command, bound=BOUND, table=table))
    if any((one.errors[~one.open] > BOUND).any() for one in scores):
        raise typer.Exit(1)


def _table(scores: list[Score]) -> str:
    lines = [_COLUMNS, ["---", *["--:"] * (len(_COLUMNS) - 1)], *map(_row, scores)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(one: Score) -> list[str]:
    errors = one.errors
    return [
        one.trouble,
        *(f"{number:,.0f}" for number in (one.sensors, one.reports, one.events, one.lost)),
        *(f"{one.seen[quality]:,}" for quality in SEEN),
        *(f"{errors.mean():.2f}", f"{np.percentile(errors, 95):.0f}", f"{errors.max():.0f}"),
        *(f"{one.open.sum()}", f"{np.mean(errors[~one.open] <= BOUND):.1%}"),
        f"{one.naive.mean():,.0f}",
    ]


if __name__ == "__main__":
    typer.run(main)
