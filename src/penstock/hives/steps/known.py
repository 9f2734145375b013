"""What is known of a sensor that counts: its last reports, its wrap point, and what it still owes.

The values that the rules (`rules`) compare and change, one sensor at a time; `states` has those of
many, from one batch to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.hives.steps.quality import Quality
from penstock.hives.steps.states import NOTHING
from penstock.hives.steps.wraps import ASSUMED, UNKNOWN, Top, top_of


class Reading(NamedTuple):
    """The totals of a report, as the device counts, and its times in microseconds."""

    total_in: int
    total_out: int
    clock: int  #: the device's, as it was sent; equal only for the same report
    utc: int  #: the same in UTC, for order
    received: int
    start: bool = False  #: the report says that the device has started


class Step(NamedTuple):
    delta_in: int
    delta_out: int
    quality: Quality
    accepted: bool  #: the reading is what the next one is compared with


@dataclass(slots=True)
class Known:
    """What is known of a sensor before a report."""

    last: Reading | None = None  #: the last that was believed
    suspect: Reading | None = None  #: one that was not, and may yet be confirmed
    settled: bool = False  #: `last` is not the very first, of which nobody knows if it was good
    seen: int = 0  #: the greatest total that was ever believed
    told_top: int = UNKNOWN  #: by the profile
    learned_top: int = UNKNOWN
    boot: int = NOTHING  #: when the device last started, by a status of its own
    former: Reading | None = None  #: the last that was believed before the last restart
    began: int = NOTHING  #: `utc` of the first report since then
    assumed_in: int = 0  #: wraps at a point that was only assumed
    assumed_out: int = 0
    owed_in: int = 0  #: counted too many; too few, if below 0
    owed_out: int = 0

    @property
    def owes(self) -> bool:
        return bool(self.owed_in or self.owed_out)

    @property
    def top(self) -> Top:
        return top_of(self.told_top, self.learned_top, self.seen)


def put_right(known: Known, found: Step) -> Step:
    """What was wrongly assumed of wraps, once their point is known. Nobody counts backwards."""
    if (known.assumed_in or known.assumed_out) and known.top.known:
        excess = ASSUMED - known.top.at
        known.owed_in += excess * known.assumed_in
        known.owed_out += excess * known.assumed_out
        known.assumed_in = known.assumed_out = 0
    if not known.owes:
        return found
    paid_in, paid_out = min(found.delta_in, known.owed_in), min(found.delta_out, known.owed_out)
    known.owed_in -= paid_in
    known.owed_out -= paid_out
    return found._replace(delta_in=found.delta_in - paid_in, delta_out=found.delta_out - paid_out)


def replace_start(reading: Reading) -> Reading:
    """Without the word that it was a start, which is nothing that lasts."""
    return reading._replace(start=False) if reading.start else reading
