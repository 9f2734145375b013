"""The greatest value of a total before it wraps to 0, if the profile does not say it.

Reports v1 have one of three wrap points: 65503, 65523 or 65535. A greater total excludes a point.
Sensors report every few events: a total that wraps within few events of its last report would have
been seen above the lower points, so the lowest point that is not excluded is learned. A wrap during
an outage proves nothing: the default is assumed and flagged until the other total or a later wrap
shows the point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock_hives.sensors.protocol.frame import DEFAULT_WRAP_AT, WRAP_POINTS
from penstock_hives.sensors.protocol.messages import SensorConfiguration

#: Totals of v2 have 32 bits.
V2_MAX_TOTAL: Final = (1 << 32) - 1
V1_MAX_TOTAL: Final = max(WRAP_POINTS)
UNKNOWN_WRAP: Final = -1
#: Assumed while the wrap point is not known.
ASSUMED_WRAP: Final = DEFAULT_WRAP_AT
#: Events per report by default.
_REPORT: Final = SensorConfiguration().event_threshold
_RISING: Final = tuple(sorted(WRAP_POINTS))


@dataclass(frozen=True, slots=True)
class WrapPoint:
    """The greatest value of a total, and whether it is known or assumed."""

    at: int
    is_known: bool


def wrap_point_of(profile: int, learned: int, seen: int) -> WrapPoint:
    """By the profile unless the data exclude it, else as learned, else the default.

    `seen` is the greatest accepted total of the sensor."""
    for point in (profile, learned):
        if point != UNKNOWN_WRAP and point >= seen:
            return WrapPoint(point, True)
    if seen > V1_MAX_TOTAL:
        return WrapPoint(V2_MAX_TOTAL, True)
    if seen > ASSUMED_WRAP:
        return WrapPoint(V1_MAX_TOTAL, True)
    return WrapPoint(ASSUMED_WRAP, False)


def learn_wrap_point(seen: int, old: int, new: int, other: int, most: float) -> int:
    """The point that a wrap from `old` to `new` shows, while the other total grew by `other`.

    Up to one report's events show it: no report was lost between. Up to two reports' events show it
    if every other point would need more than `most` events, the most the sensor can have counted
    meanwhile: after an outage, a small remainder proves nothing."""
    lowest, *others = (point for point in _RISING if point >= max(seen, old))
    passed = new + 1 + other - old
    if lowest + passed <= _REPORT:
        return lowest
    two = lowest + passed <= 2 * _REPORT and all(point + passed > most for point in others)
    return lowest if two else UNKNOWN_WRAP
