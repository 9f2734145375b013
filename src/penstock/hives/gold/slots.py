"""What is known of slots, hours and days already: only as far back as a batch reaches.

A batch touches the newest slots of a hive as a rule, and reads the hour they are in. A late row
reaches back further, in its hive alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.gold.anchors import Corrected
from penstock.hives.gold.columns import fetch
from penstock.hives.steps.calendars import HOUR_SLOTS
from penstock.hives.steps.occupancy import SLOT, Counts, Levels
from penstock.hives.steps.rollups import Stretches, joined
from penstock.store import Connection

Numbers = NDArray[np.int64]

_NUMBERS: Final = ("hive", "slot", "entries", "exits", "end", "peak")
_SLOTS: Final = """
    SELECT o.hive_id, o.slot, o.entries::bigint, o.exits::bigint,
           coalesce(o.occupancy_end, -1)::bigint, coalesce(o.peak, -1)::bigint
    FROM unnest(%(hives)s::bigint[], %(since)s::bigint[]) AS t (hive_id, since)
    CROSS JOIN LATERAL (
        SELECT * FROM occupancy_5min o
        WHERE o.hive_id = t.hive_id AND o.slot >= to_timestamp(t.since * 300)
        ORDER BY o.slot
    ) AS o
"""
_STANDING: Final = """
    SELECT hive_id, raw_occupancy::bigint
    FROM hive_status WHERE hive_id = ANY (%(hives)s::bigint[])
"""
#: Hours have what days are made of; the mean is an area over their length.
_HOURS: Final = """
    SELECT h.hive_id, h.slot, h.entries::bigint, h.exits::bigint,
           h.occupancy_end::bigint, h.peak::bigint, round(h.mean * 12)::bigint
    FROM unnest(%(hives)s::bigint[], %(since)s::bigint[], %(until)s::bigint[])
        AS t (hive_id, since, until)
    CROSS JOIN LATERAL (
        SELECT * FROM occupancy_hour h
        WHERE h.hive_id = t.hive_id
          AND h.slot >= to_timestamp(t.since * 300) AND h.slot < to_timestamp(t.until * 300)
        ORDER BY h.slot
    ) AS h
"""
_HOUR_BEFORE: Final = """
    SELECT t.hive_id, h.occupancy_end::bigint
    FROM unnest(%(hives)s::bigint[], %(since)s::bigint[]) AS t (hive_id, since)
    CROSS JOIN LATERAL (
        SELECT occupancy_end FROM occupancy_hour h
        WHERE h.hive_id = t.hive_id AND h.slot < to_timestamp(t.since * 300)
        ORDER BY h.slot DESC LIMIT 1
    ) AS h
"""


@dataclass(frozen=True, slots=True)
class Known:
    """Slots as the table has them."""

    counts: Counts
    end: Numbers
    peak: Numbers


def read_slots(connection: Connection, hives: Numbers, since: Numbers) -> Known:
    """All there are of these hives from these slots on."""
    kinds = {name: "time" if name == "slot" else "number" for name in _NUMBERS}
    found = fetch(connection, _SLOTS, kinds, _given(hives, since))
    found["slot"] //= SLOT
    end, peak = found.pop("end"), found.pop("peak")
    return Known(Counts(**found), end, peak)


def levels_before(
    connection: Connection, hives: Numbers, known: Counts, corrected: Corrected
) -> Levels:
    """What was inside before the first of the slots that are known of these hives.

    Less than now by all that was counted since, and by what anchors since have made of it.
    """
    found = fetch(
        connection, _STANDING, {"hive": "number", "raw": "number"}, {"hives": hives.tolist()}
    )
    raw = _levels(found["hive"], found["raw"]).of(hives)
    for hive, change in (
        (known.hive, known.entries - known.exits),
        (corrected.caused.anchors.hive, corrected.correction),
    ):
        np.subtract.at(raw, np.searchsorted(hives, hive), change)
    return Levels(hives, raw)


def read_hours(connection: Connection, hives: Numbers, since: Numbers, until: Numbers) -> Stretches:
    names = (*_NUMBERS, "area")
    kinds = {name: "time" if name == "slot" else "number" for name in names}
    given = _given(hives, since) | {"until": until.tolist()}
    found = fetch(connection, _HOURS, kinds, given)
    name = found.pop("slot") // SLOT
    length = np.full(len(name), HOUR_SLOTS, np.int64)
    return joined([Stretches(name=name, peak_at=name, slots=length, **found)])


def hours_before(connection: Connection, hives: Numbers, since: Numbers) -> Levels:
    """What was inside when these days began."""
    kinds = {"hive": "number", "end": "number"}
    found = fetch(connection, _HOUR_BEFORE, kinds, _given(hives, since))
    return _levels(found["hive"], found["end"])


def _levels(hives: Numbers, raw: Numbers) -> Levels:
    order = np.argsort(hives)
    return Levels(hives[order], raw[order])


def _given(hives: Numbers, since: Numbers) -> dict[str, Any]:
    return {"hives": hives.tolist(), "since": since.tolist()}
