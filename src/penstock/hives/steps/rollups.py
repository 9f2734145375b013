"""Hours and days of occupancy, from slots: what passed, the peak, and the mean weighted by time.

The figure at the end of a slot stands for its five minutes, and on until the next slot there is;
to the end of an hour or a day that is not over it is taken to stay. So a rollup is a function of
the slots alone, never of the moment it was made: it is right when the hour is over, and the best
guess before. Means are kept as areas, slots × people, which are whole numbers.

An hour or a day has a row if one of its slots has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.hives.steps.calendars import HOUR_SLOTS, Calendars
from penstock.hives.steps.occupancy import NOTHING, Levels, Occupancy, begins

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stretches:
    """Hours or days of hives, by hive and then in order of time."""

    hive: Numbers
    name: Numbers  #: an hour's first slot, or a date as days since 1970
    entries: Numbers
    exits: Numbers
    end: Numbers
    peak: Numbers
    peak_at: Numbers  #: the slot, or the hour, of the first that was so high
    area: Numbers
    slots: Numbers  #: how long it is

    def __len__(self) -> int:
        return len(self.hive)

    @property
    def mean(self) -> NDArray[np.float64]:
        return self.area / self.slots


@dataclass(frozen=True, slots=True)
class _Pieces:
    """What a stretch is made of: rows that begin somewhere, are so long and end with a figure."""

    hive: Numbers
    begin: Numbers
    length: Numbers
    entries: Numbers
    exits: Numbers
    end: Numbers
    peak: Numbers
    area: Numbers


def hours(occupancy: Occupancy, before: Levels, calendars: Calendars) -> Stretches:
    """Of slots that begin with an hour; `before` is what was inside then."""
    counts, end = occupancy.counts, occupancy.end
    one = np.ones(len(counts), np.int64)
    pieces = _Pieces(
        counts.hive, counts.slot, one, counts.entries, counts.exits, end, occupancy.peak, end
    )
    hour = calendars.hour(counts.hive, counts.slot)
    length = np.full(len(counts), HOUR_SLOTS)
    return _rolled(pieces, before, hour, hour, hour + length)


def days(hours: Stretches, before: Levels, calendars: Calendars) -> Stretches:
    """Of hours that begin with a day; `before` is what was inside then."""
    pieces = _Pieces(
        *(hours.hive, hours.name, hours.slots, hours.entries, hours.exits),
        *(hours.end, hours.peak, hours.area),
    )
    day = calendars.day(hours.hive, hours.name)
    midnight = calendars.midnight(hours.hive, day)
    return _rolled(pieces, before, day, midnight, calendars.midnight(hours.hive, day + 1))


def joined(parts: list[Stretches]) -> Stretches:
    """Stretches of different names put in order."""
    columns = [
        np.concatenate([NOTHING, *(getattr(each, name) for each in parts)])
        for name in Stretches.__slots__
    ]
    order = np.lexsort((columns[1], columns[0]))
    return Stretches(*(column[order] for column in columns))


def _rolled(
    pieces: _Pieces, before: Levels, name: Numbers, start: Numbers, stop: Numbers
) -> Stretches:
    """Pieces with the same name become one row, from `start` to `stop`."""
    if not len(name):
        return Stretches(*(NOTHING for _ in Stretches.__slots__))
    firsts = begins(pieces.hive)
    first = firsts | begins(name)
    row = np.flatnonzero(first)
    group = np.cumsum(first) - 1
    last = np.append(row[1:], len(name)) - 1

    inside = np.where(firsts, np.maximum(before.of(pieces.hive), 0), np.roll(pieces.end, 1))
    # Until the next piece of the stretch, or its end, it stays as the piece has left it.
    until = np.append(pieces.begin[1:], 0)
    until[last] = stop[last]
    quiet = np.maximum(until - pieces.begin - pieces.length, 0)
    waiting = np.where(first, np.maximum(pieces.begin - start, 0), 0)
    area = pieces.area + quiet * pieces.end + waiting * inside

    # Who was inside when the stretch began is its peak, if nobody else came.
    peak = np.where(waiting > 0, np.maximum(pieces.peak, inside), pieces.peak)
    highest = np.maximum.reduceat(peak, row)
    peaks = np.flatnonzero(peak == highest[group])
    _, at = np.unique(group[peaks], return_index=True)
    return Stretches(
        hive=pieces.hive[row],
        name=name[row],
        entries=np.add.reduceat(pieces.entries, row),
        exits=np.add.reduceat(pieces.exits, row),
        end=pieces.end[last],
        peak=highest,
        peak_at=pieces.begin[peaks[at]],
        area=np.add.reduceat(area, row),
        slots=(stop - start)[row],
    )
