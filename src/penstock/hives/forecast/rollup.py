"""The hourly rollup and the hives it is of, out of PostgreSQL into Spark: what a night begins with.

Workers read, each its share of the hives: years of thousands of hives never pass through the
driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.hives.forecast.histories import HISTORY_DAYS
from penstock.hives.gold.columns import fetch
from penstock.store import Database, connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = "hive_id long, slot timestamp, entries long"
#: Shares of the hives, each read by a task.
SHARES: Final = 8
_HOURS: Final = """
    SELECT hive_id, slot, entries::bigint FROM occupancy_hour
     WHERE hive_id %% %(shares)s = %(share)s AND slot >= %(since)s
"""
_KINDS: Final = {"hive_id": "number", "slot": "time", "entries": "number"}
_HIVES: Final = """
    SELECT h.id AS hive_id, h.time_zone, coalesce(a.country, '') AS country
      FROM hive h LEFT JOIN address a ON a.id = h.address_id ORDER BY h.id
"""
_MOMENT: Final = pa.timestamp("us", tz="UTC")


def hourly(spark: SparkSession, url: str, now: datetime) -> DataFrame:
    """hive_id, slot, entries: as much of the past as forecasts are made from."""
    # A day more than is looked at: local days begin before those of UTC.
    reading = _Reading(url, now - timedelta(days=HISTORY_DAYS + 1))
    return spark.range(0, SHARES, 1, SHARES).mapInArrow(reading, SCHEMA)


def hives(spark: SparkSession, database: Database) -> DataFrame:
    """hive_id, time_zone, country."""
    rows = database.rows(_HIVES)
    schema = pa.schema(
        [("hive_id", pa.int64()), ("time_zone", pa.string()), ("country", pa.string())]
    )
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema))


@dataclass(frozen=True, slots=True)
class _Reading:
    url: str
    since: datetime

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch["id"].to_pylist():
                yield self._read(share)

    def _read(self, share: int) -> pa.RecordBatch:
        wanted = {"shares": SHARES, "share": share, "since": self.since}
        with connect(self.url) as connection:
            found = fetch(connection, _HOURS, _KINDS, wanted)
        slots = pa.array(found["slot"], pa.int64()).cast(_MOMENT)
        return pa.RecordBatch.from_pydict(
            {"hive_id": found["hive_id"], "slot": slots, "entries": found["entries"]}
        )
