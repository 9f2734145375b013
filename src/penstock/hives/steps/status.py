"""What is said of a hive now: how full, in words, where it is going, and whether to believe it.

A hive is *good* while all its doors are heard of, *partial* while some are, *stale* when none is:
then its last figure stands, and nobody calls it quiet. A door is heard of for twice as long as it
may be silent. Times are those of the messages, to the slot, so that the same messages say the same
whenever they are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.steps.occupancy import SLOT, Levels, Occupancy

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]
Texts = NDArray[np.str_]

#: A trend is the change over so many slots: a quarter of an hour.
TREND_SLOTS: Final = 3
#: Below these shares of its capacity a hive is quiet, moderate, busy; above, it is full.
_LEVELS: Final = ((40.0, "quiet"), (70.0, "moderate"), (95.0, "busy"))
_FULL: Final = "full"
NO_LEVEL: Final = ""
#: Instead of a change, of hives in which nothing was counted.
NO_NEWS: Final = np.iinfo(np.int64).min
#: A change that is worth a word: so many people, and so much of the capacity, at least.
_FEW: Final = 2
_SHARE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Heard:
    """Of hives, what their doors have told, and until when they need not tell more."""

    hive: Numbers
    as_of: Numbers  #: microseconds, of the last message; 0: never
    doors: Numbers
    fresh: Numbers  #: doors that are heard of
    fresh_until: Numbers  #: of the door that is heard of longest

    def quality(self) -> Texts:
        return np.select([self.fresh == 0, self.fresh < self.doors], ["stale", "partial"], "good")


@dataclass(frozen=True, slots=True)
class Figures:
    """Of hives in order: who is inside, and how many more than a while ago."""

    hive: Numbers
    raw: Numbers
    change: Numbers


def figures(occupancy: Occupancy, before: Levels) -> Figures:
    """From slots, which begin `TREND_SLOTS` before the last of each hive or earlier."""
    counts, end = occupancy.counts, occupancy.end
    first = np.flatnonzero(counts.firsts)
    last = np.append(first[1:], len(counts))[: len(first)] - 1
    # The last row that ends before the while begins; none of the hive's: what was inside before.
    then = counts.slot[last] - TREND_SLOTS
    least = counts.slot.min(initial=0) - TREND_SLOTS
    span = counts.slot.max(initial=0) - least + 1
    group = np.cumsum(counts.firsts) - 1
    keys = group * span + counts.slot - least
    earlier = np.searchsorted(keys, np.arange(len(first)) * span + then - least, "right") - 1
    known = earlier >= first
    ahead = np.maximum(before.of(counts.hive[last]), 0)
    was = np.where(known, end[np.maximum(earlier, 0)], ahead)
    return Figures(counts.hive[last], occupancy.raw[last], end[last] - was)


@dataclass(frozen=True, slots=True)
class Statuses:
    """Rows of `hive_status`, but for their versions."""

    hive: Numbers
    occupancy: Numbers
    raw: Numbers
    percent: NDArray[np.float64]  #: NaN without a capacity
    level: Texts  #: empty without a capacity, and when nobody knows
    trend: Texts
    quality: Texts
    as_of: Numbers


def statuses(
    inside: Figures, capacity: Numbers, was: Texts, heard: Heard, now: Numbers | int
) -> Statuses:
    """Of the same hives, in the same order. A capacity of 0 is none.

    `was` is the trend until now, for hives of which there is no news (a change of `NO_NEWS`).
    """
    occupancy = np.maximum(inside.raw, 0)
    percent = np.full(len(occupancy), np.nan)
    np.divide(100.0 * occupancy, capacity, out=percent, where=capacity > 0)
    quality = heard.quality()
    level = np.select([percent < most for most, _ in _LEVELS], [word for _, word in _LEVELS], _FULL)
    level = np.where(np.isnan(percent) | (quality == "stale"), NO_LEVEL, level)
    return Statuses(
        hive=inside.hive,
        occupancy=occupancy,
        raw=inside.raw,
        percent=percent,
        level=level,
        trend=_trend(inside, occupancy, capacity, was, heard.as_of, now),
        quality=quality,
        as_of=heard.as_of,
    )


def _trend(
    inside: Figures,
    occupancy: Numbers,
    capacity: Numbers,
    was: Texts,
    as_of: Numbers,
    now: Numbers | int,
) -> Texts:
    most = np.where(capacity > 0, capacity, np.maximum(occupancy, occupancy - inside.change))
    enough = np.maximum(_FEW, np.ceil(most * _SHARE))
    silent = now - as_of > TREND_SLOTS * SLOT
    return np.select(
        [silent, inside.change == NO_NEWS, inside.change >= enough, inside.change <= -enough],
        ["steady", was, "rising", "falling"],
        "steady",
    )
