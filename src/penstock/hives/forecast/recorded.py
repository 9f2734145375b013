"""The hives' own histories, out of the hourly rollup in PostgreSQL."""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.hives.forecast.grid import HOURS, Grid, skipped
from penstock.hives.forecast.public_days import PublicDays
from penstock.hives.forecast.venues import Venue
from penstock.store import Database

#: Local hours since 1970 and entries, a row a hive.
_HISTORIES: Final = """
    SELECT h.id, h.name, h.time_zone, coalesce(a.country, '') AS country,
           array_agg(extract(epoch FROM o.slot AT TIME ZONE h.time_zone)::bigint / 3600) AS hours,
           array_agg(o.entries) AS entries
      FROM occupancy_hour o
      JOIN hive h ON h.id = o.hive_id
      LEFT JOIN address a ON a.id = h.address_id
     GROUP BY h.id, a.country
     ORDER BY h.id
"""


def venues(database: Database) -> list[Venue]:
    """All hives that have one; their names are made unique by their numbers."""
    found = []
    for row in database.rows(_HISTORIES):
        days, hours = np.divmod(np.array(row["hours"], np.int64), HOURS)
        grid = Grid.of(days, hours, np.array(row["entries"], np.float64), absent=0.0)
        lacking = skipped(grid.first, len(grid.counts), row["time_zone"])
        counts = np.where(lacking, np.nan, grid.counts)
        name = f"{row['id']} {row['name']}"
        found.append(Venue(name, Grid(grid.first, counts), PublicDays(row["country"])))
    return found
