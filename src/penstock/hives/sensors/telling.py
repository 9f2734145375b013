"""The truth of a simulation, in files: `truth.parquet`, and beside it what else there is to know.

`truth.occupancy.parquet` has who was inside, `truth.ledger.parquet` the sums by sensor, and, when
asked for, `truth.events.parquet` everybody one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from penstock.hives.sensors.fleet import Fleet, Window
from penstock.hives.sensors.tables import Table, open_table


class Telling:
    def __init__(self, counts: Table, occupancy: Table, events: Table | None) -> None:
        self._counts = counts
        self._occupancy = occupancy
        self._events = events

    def write(self, window: Window) -> None:
        self._counts.write(window.truth.counts())
        self._occupancy.write(window.truth.occupancy())
        if self._events is not None:
            self._events.write(window.truth.events())


@contextmanager
def open_telling(path: Path, fleet: Fleet, with_events: bool = False) -> Iterator[Telling]:
    """The ledger is written when all else has been."""
    with ExitStack() as stack:

        def beside(name: str) -> Table:
            return stack.enter_context(open_table(path.with_suffix(f".{name}{path.suffix}")))

        counts = stack.enter_context(open_table(path))
        yield Telling(counts, beside("occupancy"), beside("events") if with_events else None)
        beside("ledger").write(fleet.ledger())
