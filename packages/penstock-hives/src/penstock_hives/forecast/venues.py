"""Venues to forecast: from PostgreSQL, or from files of open data.

* `.csv`: `timestamp,NAME,NAME,…`, one row per local hour, empty where unknown.
* `.data`: the CalIt2 data set's `flow,date,time,count`, half-hours of one door; entries only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.core.errors import ConfigurationError
from penstock_hives.arrays import Floats
from penstock_hives.forecast.grid import HOURS, HourlyGrid, PublicHolidays, skipped_hours
from penstock_store import Database

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Venue:
    name: str
    grid: HourlyGrid
    public: PublicHolidays = field(default_factory=PublicHolidays)


_IN: Final = 9


def read_count_file(path: Path, public: PublicHolidays) -> list[Venue]:
    readers = {".csv": _hourly, ".data": _door}
    if path.suffix not in readers:
        raise ConfigurationError(f"{path}: should end with {' or '.join(readers)}")
    try:
        return readers[path.suffix](path, public)
    except (ValueError, KeyError) as error:
        raise ConfigurationError(f"{path}: cannot be read as counts: {error}") from error


def _hourly(path: Path, public: PublicHolidays) -> list[Venue]:
    import pandas as pd

    table = pd.read_csv(path, parse_dates=["timestamp"]).set_index("timestamp")
    return [Venue(str(name), _grid(table.index, table[name]), public) for name in table.columns]


def _door(path: Path, public: PublicHolidays) -> list[Venue]:
    import pandas as pd

    table = pd.read_csv(path, header=None, names=["flow", "date", "time", "count"])
    table = table[table["flow"] == _IN]
    moments = pd.to_datetime(table["date"] + " " + table["time"], format="%m/%d/%y %H:%M:%S")
    hourly = table.groupby(moments.dt.floor("h"))["count"].sum()
    return [Venue(path.stem, _grid(pd.DatetimeIndex(hourly.index), hourly), public)]


def _grid(moments: pd.DatetimeIndex, counts: pd.Series[float]) -> HourlyGrid:
    days = moments.to_numpy("datetime64[D]").astype(np.int64)
    values: Floats = counts.to_numpy(np.float64)
    return HourlyGrid.of(days, moments.hour.to_numpy(np.int64), values)


#: Local hours since 1970 and entries, a row for each hive.
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


def read_venues(database: Database) -> list[Venue]:
    """All hives with history; ids make their names unique."""
    found = []
    for row in database.rows(_HISTORIES):
        days, hours = np.divmod(np.array(row["hours"], np.int64), HOURS)
        grid = HourlyGrid.of(days, hours, np.array(row["entries"], np.float64), absent=0.0)
        skipped = skipped_hours(grid.first, len(grid.counts), row["time_zone"])
        counts = np.where(skipped, np.nan, grid.counts)
        name = f"{row['id']} {row['name']}"
        found.append(Venue(name, HourlyGrid(grid.first, counts), PublicHolidays(row["country"])))
    return found
