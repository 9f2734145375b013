"""Histories out of files: open data sets of people counts, to see what forecasts are worth.

* `.csv`: `timestamp,NAME,NAME,…`, a row an hour of the local clock, empty where unknown.
* `.data`: the CalIt2 set's `flow,date,time,count`, half-hours of one door; those who enter.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.core.errors import ConfigurationError
from penstock.hives.forecast.grid import Floats, Grid
from penstock.hives.forecast.public_days import PublicDays
from penstock.hives.forecast.venues import Venue

if TYPE_CHECKING:
    import pandas as pd

_IN: Final = 9


def read(path: Path, public: PublicDays) -> list[Venue]:
    readers = {".csv": _hourly, ".data": _door}
    if path.suffix not in readers:
        raise ConfigurationError(f"{path}: should end with {' or '.join(readers)}")
    try:
        return readers[path.suffix](path, public)
    except (ValueError, KeyError) as error:
        raise ConfigurationError(f"{path}: cannot be read as counts: {error}") from error


def _hourly(path: Path, public: PublicDays) -> list[Venue]:
    import pandas as pd

    table = pd.read_csv(path, parse_dates=["timestamp"]).set_index("timestamp")
    return [Venue(str(name), _grid(table.index, table[name]), public) for name in table.columns]


def _door(path: Path, public: PublicDays) -> list[Venue]:
    import pandas as pd

    table = pd.read_csv(path, header=None, names=["flow", "date", "time", "count"])
    table = table[table["flow"] == _IN]
    moments = pd.to_datetime(table["date"] + " " + table["time"], format="%m/%d/%y %H:%M:%S")
    hourly = table.groupby(moments.dt.floor("h"))["count"].sum()
    return [Venue(path.stem, _grid(pd.DatetimeIndex(hourly.index), hourly), public)]


def _grid(moments: pd.DatetimeIndex, counts: pd.Series[float]) -> Grid:
    days = moments.to_numpy("datetime64[D]").astype(np.int64)
    values: Floats = counts.to_numpy(np.float64)
    return Grid.of(days, moments.hour.to_numpy(np.int64), values)
