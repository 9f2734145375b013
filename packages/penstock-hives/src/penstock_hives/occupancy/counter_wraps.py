"""Where a total wraps, when nobody has written it down.

Three points are named for v1: 65503, 65523 and 65535. A total above one excludes it. Reports come
every few events: a total that wraps within few events of its last report would have been seen above
the lower points if it went there, so the lowest that is not excluded is the one, and is remembered.
A wrap that happened unseen, in an outage, proves nothing: the default is
assumed, and said to be, until the sensor's other total, or a later wrap, shows the point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock_hives.sensors.protocol.configuration import SensorConfiguration
from penstock_hives.sensors.protocol.profile import DEFAULT_WRAP_AT, WRAP_POINTS

#: Totals of v2 have 32 bits.
V2_MAX_TOTAL: Final = (1 << 32) - 1
V1_MAX_TOTAL: Final = max(WRAP_POINTS)
UNKNOWN_WRAP: Final = -1
#: What is taken for the point while nobody knows it.
ASSUMED_WRAP: Final = DEFAULT_WRAP_AT
#: Events that make a report, unless a device is told otherwise.
_REPORT: Final = SensorConfiguration().event_threshold
_RISING: Final = tuple(sorted(WRAP_POINTS))


@dataclass(frozen=True, slots=True)
class WrapPoint:
    """The greatest value of a total, and how well it is known."""

    at: int
    known: bool


def wrap_point_of(told: int, learned: int, seen: int) -> WrapPoint:
    """By the profile unless the data exclude it, else by what was learned, else by default.

    `seen` is the greatest total of this sensor that was ever believed."""
    for known in (told, learned):
        if known != UNKNOWN_WRAP and known >= seen:
            return WrapPoint(known, True)
    if seen > V1_MAX_TOTAL:
        return WrapPoint(V2_MAX_TOTAL, True)
    if seen > ASSUMED_WRAP:
        return WrapPoint(V1_MAX_TOTAL, True)
    return WrapPoint(ASSUMED_WRAP, False)


def learn_wrap_point(seen: int, old: int, new: int, other: int, most: float) -> int:
    """The point that a wrap from `old` to `new` shows, while the other total grew by `other`.

    One report's worth shows it: none was lost between. Two show it only if with any other point it
    were more events than the sensor can have counted meanwhile, `most`: after an outage, few may be
    left of many."""
    lowest, *others = (point for point in _RISING if point >= max(seen, old))
    passed = new + 1 + other - old
    if lowest + passed <= _REPORT:
        return lowest
    two = lowest + passed <= 2 * _REPORT and all(point + passed > most for point in others)
    return lowest if two else UNKNOWN_WRAP
