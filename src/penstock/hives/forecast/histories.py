"""From the hourly rollup to one row a hive with all of its history: what workers forecast from.

What of the rollup was known when a night began is settled here, once: rows of local days before the
one to be forecast, of hours that had ended. Local hours are worked out by Spark, whatever the
session's zone; one shuffle brings the rows of a hive together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import numpy as np

from penstock.hives.forecast.grid import HOURS, Floats, Grid, day_number, skipped
from penstock.hives.forecast.public_days import PublicDays

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: Two years: the holidays of one to learn from, and those of another.
HISTORY_DAYS: Final = 730
_SCHEMA: Final = (
    "hive_id long, time_zone string, country string, region string, "
    "first date, counts array<double>"
)
_HIVE: Final = ("hive_id", "time_zone", "country", "region")


@dataclass(frozen=True, slots=True)
class History:
    hive_id: int
    time_zone: str
    public: PublicDays
    grid: Grid


def histories(hourly: DataFrame, hives: DataFrame, day: date, made_at: datetime) -> DataFrame:
    """`hourly`: hive_id, slot, entries. `hives`: hive_id, time_zone, country, and maybe region."""
    local = local_hours(hourly, hives, day, made_at)
    return local.groupBy(*_HIVE).applyInPandas(_gathering(made_at), _SCHEMA)


def local_hours(hourly: DataFrame, hives: DataFrame, day: date, made_at: datetime) -> DataFrame:
    """hive_id, time_zone, country, region, day (since 1970), hour, entries."""
    from pyspark.sql import functions as f

    known = hives if "region" in hives.columns else hives.withColumn("region", f.lit(""))
    named = known.select("hive_id", "time_zone", *(_text(known, each) for each in _HIVE[2:]))
    ended = f.unix_seconds("slot") + 3600 <= int(made_at.timestamp())
    seconds = f.unix_seconds(f.from_utc_timestamp("slot", f.col("time_zone")))
    last = day_number(day)
    return (
        hourly.where(ended)
        .join(f.broadcast(named), "hive_id")
        .withColumn("local", seconds)
        .withColumn("day", f.floor(f.col("local") / 86400).cast("long"))
        .withColumn("hour", f.floor(f.col("local") % 86400 / 3600).cast("long"))
        .where(f.col("day").between(last - HISTORY_DAYS, last - 1))
        .select(*_HIVE, "day", "hour", f.col("entries").cast("double").alias("entries"))
    )


def each_history(batches: Iterator[pa.RecordBatch]) -> Iterator[History]:
    """What a worker is given, as values."""
    for batch in batches:
        told = batch.drop_columns(["counts"]).to_pylist()
        for row, counts in zip(told, batch["counts"], strict=True):
            # Unknown is NaN here and may be null there.
            known = np.array(counts.values.to_numpy(zero_copy_only=False), np.float64)
            grid = Grid(row["first"], known.reshape(-1, HOURS))
            public = PublicDays(row["country"], row["region"])
            yield History(row["hive_id"], row["time_zone"], public, grid)


def _gathering(made_at: datetime) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def gather(rows: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd

        hive = rows.iloc[0]
        days, hours, entries = (rows[name].to_numpy() for name in ("day", "hour", "entries"))
        grid = Grid.of(days, hours, entries, absent=0.0)
        counts = _told(grid, str(hive["time_zone"]), made_at)
        held = {name: [hive[name]] for name in _HIVE}
        return pd.DataFrame({**held, "first": [grid.first], "counts": [counts.ravel()]})

    return gather


def _told(grid: Grid, zone: str, made_at: datetime) -> Floats:
    """No row means that nobody came, save for hours that were not, or had not ended."""
    now = made_at.astimezone(ZoneInfo(zone))
    counts = np.where(skipped(grid.first, len(grid.counts), zone), np.nan, grid.counts)
    today = grid.place(now.date())
    if 0 <= today < len(counts):
        counts[today, now.hour :] = np.nan
    return counts


def _text(frame: DataFrame, name: str) -> Any:
    from pyspark.sql import functions as f

    return f.coalesce(f.col(name).cast("string"), f.lit("")).alias(name)
