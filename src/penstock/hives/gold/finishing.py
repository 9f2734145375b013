"""Days that are over: their KPIs, made when a hive's clock has passed midnight, and when a late row
changes them."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.gold import slots
from penstock.hives.gold.columns import fetch
from penstock.hives.gold.places import Places
from penstock.hives.gold.writing import Writer
from penstock.hives.steps.kpis import kpis
from penstock.store import Connection

Numbers = NDArray[np.int64]

#: The day after the last that has its KPIs, or the first there is.
_UNFINISHED: Final = """
    SELECT t.hive_id, coalesce(done.day + 1, begun.day, '9999-01-01') - '1970-01-01'::date
    FROM unnest(%(hives)s::bigint[]) AS t (hive_id)
    LEFT JOIN LATERAL (
        SELECT day FROM kpi_day k WHERE k.hive_id = t.hive_id ORDER BY day DESC LIMIT 1
    ) AS done ON true
    LEFT JOIN LATERAL (
        SELECT day FROM occupancy_day d WHERE d.hive_id = t.hive_id ORDER BY day LIMIT 1
    ) AS begun ON true
"""


def first_unfinished(connection: Connection, hives: Numbers) -> Numbers:
    """Of hives in order: the first day that has no KPIs, as days since 1970."""
    kinds = {"hive": "number", "day": "number"}
    found = fetch(connection, _UNFINISHED, kinds, {"hives": hives.tolist()})
    return found["day"][np.argsort(found["hive"])]


def finish(writer: Writer, places: Places, hives: Numbers, since: Numbers, until: Numbers) -> None:
    """From the days `since` to those before `until`."""
    if not len(hives):
        return
    begin = places.calendars.midnight(hives, since)
    end = places.calendars.midnight(hives, until)
    hours = slots.read_hours(writer.connection, hives, begin, end)
    if not len(hours):
        return
    before = slots.hours_before(writer.connection, hives, begin)
    made = kpis(hours, before, places.calendars, places.opening)
    writer.kpis(made, places.capacity_of(made.hive))
