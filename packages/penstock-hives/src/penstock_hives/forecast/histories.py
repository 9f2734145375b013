"""Histories of hives from the hourly rollup in PostgreSQL: one Spark row per hive.

Tasks read the rollup, each a share of the hives; no rows pass through the driver. Only hours that
had ended, of local days before the forecast day, are used. One shuffle brings the rows of a hive
together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from penstock_hives.arrays import Floats
from penstock_hives.dates import day_number
from penstock_hives.forecast.grid import HOURS, HourlyGrid, PublicHolidays, skipped_hours
from penstock_hives.occupancy.gold.columns import fetch_columns
from penstock_hives.partitions import read_partitioned
from penstock_store import Connection, Database

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession


#: Two years, so that each public holiday occurs twice.
HISTORY_DAYS: Final = 730
_HISTORY_SCHEMA: Final = (
    "hive_id long, time_zone string, country string, region string, "
    "first date, counts array<double>"
)
_HIVE_COLUMNS: Final = ("hive_id", "time_zone", "country", "region")


@dataclass(frozen=True, slots=True)
class HiveHistory:
    hive_id: int
    time_zone: str
    public: PublicHolidays
    grid: HourlyGrid


def hive_histories(hourly: DataFrame, hives: DataFrame, day: date, made_at: datetime) -> DataFrame:
    """`hourly`: hive_id, slot, entries. `hives`: hive_id, time_zone, country, region or not."""
    local = local_hours(hourly, hives, day, made_at)
    return local.groupBy(*_HIVE_COLUMNS).applyInPandas(_grid_builder(made_at), _HISTORY_SCHEMA)


def local_hours(hourly: DataFrame, hives: DataFrame, day: date, made_at: datetime) -> DataFrame:
    """hive_id, time_zone, country, region, day (since 1970), hour, entries."""
    from pyspark.sql import functions as f

    known = hives if "region" in hives.columns else hives.withColumn("region", f.lit(""))
    named = known.select(
        "hive_id", "time_zone", *(_text(known, each) for each in _HIVE_COLUMNS[2:])
    )
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
        .select(*_HIVE_COLUMNS, "day", "hour", f.col("entries").cast("double").alias("entries"))
    )


def read_histories(batches: Iterator[pa.RecordBatch]) -> Iterator[HiveHistory]:
    for batch in batches:
        rows = batch.drop_columns(["counts"]).to_pylist()
        for row, counts in zip(rows, batch["counts"], strict=True):
            # Unknown is NaN here and may be null in Spark.
            known = np.array(counts.values.to_numpy(zero_copy_only=False), np.float64)
            grid = HourlyGrid(row["first"], known.reshape(-1, HOURS))
            public = PublicHolidays(row["country"], row["region"])
            yield HiveHistory(row["hive_id"], row["time_zone"], public, grid)


def _grid_builder(made_at: datetime) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def build(rows: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd

        hive = rows.iloc[0]
        days, hours, entries = (rows[name].to_numpy() for name in ("day", "hour", "entries"))
        grid = HourlyGrid.of(days, hours, entries, absent=0.0)
        counts = _without_future(grid, str(hive["time_zone"]), made_at)
        columns = {name: [hive[name]] for name in _HIVE_COLUMNS}
        return pd.DataFrame({**columns, "first": [grid.first], "counts": [counts.ravel()]})

    return build


def _without_future(grid: HourlyGrid, zone: str, made_at: datetime) -> Floats:
    """Hours that did not exist, or have not ended, are unknown."""
    now = made_at.astimezone(ZoneInfo(zone))
    counts = np.where(skipped_hours(grid.first, len(grid.counts), zone), np.nan, grid.counts)
    today = grid.index(now.date())
    if 0 <= today < len(counts):
        counts[today, now.hour :] = np.nan
    return counts


def _text(frame: DataFrame, name: str) -> Any:
    from pyspark.sql import functions as f

    return f.coalesce(f.col(name).cast("string"), f.lit("")).alias(name)


HOURLY_SCHEMA: Final = pa.schema(
    [
        ("hive_id", pa.int64()),
        ("slot", pa.timestamp("us", tz="UTC")),
        ("entries", pa.int64()),
    ]
)
_HOURS: Final = """
    SELECT hive_id, slot, entries::bigint FROM occupancy_hour
     WHERE hive_id %% %(shares)s = %(share)s AND slot >= %(since)s
"""
_HIVES: Final = """
    SELECT h.id AS hive_id, h.time_zone, coalesce(a.country, '') AS country
      FROM hive h LEFT JOIN address a ON a.id = h.address_id ORDER BY h.id
"""


def read_hourly(spark: SparkSession, url: str, now: datetime) -> DataFrame:
    """hive_id, slot, entries: the history that forecasts use."""
    # One day more, because local days begin before those of UTC.
    since = {"since": now - timedelta(days=HISTORY_DAYS + 1)}
    return read_partitioned(spark, url, _HOURS, HOURLY_SCHEMA, since, _fetch_hours)


def _fetch_hours(
    connection: Connection, statement: str, parameters: Mapping[str, Any], schema: pa.Schema
) -> pa.Table:
    kinds = {"hive_id": "number", "slot": "time", "entries": "number"}
    columns = fetch_columns(connection, statement, kinds, parameters)
    arrays = [pa.array(columns[each.name]).cast(each.type) for each in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def read_hives(spark: SparkSession, database: Database) -> DataFrame:
    """hive_id, time_zone, country."""
    rows = database.rows(_HIVES)
    schema = pa.schema(
        [("hive_id", pa.int64()), ("time_zone", pa.string()), ("country", pa.string())]
    )
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema))
