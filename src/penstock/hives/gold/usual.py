"""Table `typical_week`: what is usual at a hive, by weekday and hour of its own clock.

Medians over the last weeks, of the hours that were heard of. A weekday is made again when one of it
is over, and when a late row changes one; so it is a function of the hours alone, however they came.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.store import Connection

Numbers = NDArray[np.int64]

#: Two months: enough for a median, few enough to follow the seasons.
WEEKS: Final = 8
_DAYS: Final = 7

_MAKE: Final = """
    INSERT INTO typical_week AS held (hive_id, weekday, hour, entries, occupancy, weeks, made_at)
    SELECT t.hive_id, extract(isodow FROM t.day) - 1,
           extract(hour FROM o.slot AT TIME ZONE h.time_zone) AS hour,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY o.entries),
           percentile_cont(0.5) WITHIN GROUP (ORDER BY o.mean),
           count(DISTINCT week.number),
           (t.day + 1)::timestamp AT TIME ZONE h.time_zone
    FROM (
        SELECT hive_id, '1970-01-01'::date + day AS day
        FROM unnest(%(hives)s::bigint[], %(days)s::int[]) AS t (hive_id, day)
    ) AS t
    JOIN hive h ON h.id = t.hive_id
    CROSS JOIN generate_series(0, %(weeks)s - 1) AS week (number)
    JOIN occupancy_hour o ON o.hive_id = t.hive_id
        AND o.slot >= (t.day - 7 * week.number)::timestamp AT TIME ZONE h.time_zone
        AND o.slot < (t.day - 7 * week.number + 1)::timestamp AT TIME ZONE h.time_zone
    GROUP BY t.hive_id, t.day, h.time_zone, hour
    ON CONFLICT (hive_id, weekday, hour) DO UPDATE SET
        entries = excluded.entries, occupancy = excluded.occupancy, weeks = excluded.weeks,
        made_at = excluded.made_at
    WHERE (held.entries, held.occupancy, held.weeks, held.made_at)
        IS DISTINCT FROM (excluded.entries, excluded.occupancy, excluded.weeks, excluded.made_at)
"""


def make(connection: Connection, hives: Numbers, since: Numbers, until: Numbers) -> None:
    """The weekdays of the days from `since` to those before `until`, each by its last."""
    since = np.maximum(since, until - _DAYS)
    counts = until - since
    owner = np.repeat(np.arange(len(hives)), counts)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    days = since[owner] + within
    given = {"hives": hives[owner].tolist(), "days": days.tolist(), "weeks": WEEKS}
    connection.execute(_MAKE, given)
