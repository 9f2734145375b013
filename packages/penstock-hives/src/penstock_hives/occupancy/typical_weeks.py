"""The typical week of hives: medians of entries and occupancy by local weekday and hour.

A hive's week is updated once a day, after its local midnight, by tasks of Spark that each read and
write the hives of a shard, or by this process if there are few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from penstock_hives.arrays import Floats, Numbers, is_run_start
from penstock_hives.occupancy.calendars import DAY_MICROS, HiveCalendars
from penstock_hives.occupancy.device_clock import HOUR_MICROS
from penstock_hives.occupancy.gold.catalogue import HiveShard, hives_version
from penstock_hives.occupancy.gold.columns import fetch_table
from penstock_hives.occupancy.slots import SLOT_MICROS
from penstock_hives.occupancy.writer import SMALL_HIVES, available_tasks
from penstock_store import (
    Connection,
    Database,
    copy_rows,
    create_staging_table,
    drop_staging_table,
    merge_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Weeks of medians: enough for a median, few enough to follow the seasons.
TYPICAL_WEEKS: Final = 8
_TABLE: Final = "typical_week"
_KEYS: Final = ("hive_id", "weekday", "hour")
#: Hives that one transaction updates, with up to 1,344 hours each.
_HIVES_PER_TRANSACTION: Final = 500
#: Hives of a task.
_HIVES_PER_TASK: Final = 20_000
#: 1970 began on a Thursday; weeks begin on Monday.
_TO_MONDAY: Final = 3

#: Hours before the last midnight of hives whose week was not made since then.
_HOURS: Final = """
    WITH due AS (
        SELECT h.id, h.time_zone, date_trunc('day', %(now)s::timestamptz, h.time_zone) AS until
        FROM hive h
        WHERE h.id = ANY (%(hives)s::bigint[]) AND NOT EXISTS (
            SELECT FROM typical_week t
            WHERE t.hive_id = h.id
              AND t.made_at >= date_trunc('day', %(now)s::timestamptz, h.time_zone)
        )
    )
    SELECT due.id, due.time_zone, due.until, o.slot, o.entries::float8, o.mean
    FROM due
    JOIN occupancy_hour o ON o.hive_id = due.id
        AND o.slot < due.until
        AND o.slot >= due.until - %(weeks)s * interval '7 days'
    WHERE o.mean IS NOT NULL
"""
_UTC: Final = pa.timestamp("us", "UTC")
_HOUR_SCHEMA: Final = pa.schema(
    [
        ("hive_id", pa.int64()),
        ("time_zone", pa.string()),
        ("until", _UTC),
        ("slot", _UTC),
        ("entries", pa.float64()),
        ("mean", pa.float64()),
    ]
)
#: Hours without data in all those weeks.
_DELETE: Final = """
    DELETE FROM typical_week t USING hive h
    WHERE h.id = t.hive_id AND t.hive_id = ANY (%(hives)s::bigint[])
      AND t.made_at < date_trunc('day', %(now)s::timestamptz, h.time_zone)
"""


def compute_typical_weeks(
    hive: Numbers, slot: Numbers, entries: Floats, mean: Floats, calendars: HiveCalendars
) -> pa.Table:
    """Medians of hours; `slot` is the first slot of each hour."""
    local = slot * SLOT_MICROS + calendars.offsets(hive, slot)
    day, hour = local // DAY_MICROS, local % DAY_MICROS // HOUR_MICROS
    weekday = (day + _TO_MONDAY) % 7
    order = np.lexsort((day, hour, weekday, hive))
    hive, weekday, hour, day = hive[order], weekday[order], hour[order], day[order]
    first = is_run_start(hive) | is_run_start(weekday) | is_run_start(hour)
    begin = np.flatnonzero(first)
    group = np.cumsum(first) - 1
    other_day = (first | is_run_start(day)).astype(np.int64)
    return pa.table(
        {
            "hive_id": hive[begin],
            "weekday": weekday[begin],
            "hour": hour[begin],
            "entries": _medians(group, begin, entries[order]),
            "occupancy": _medians(group, begin, mean[order]),
            "weeks": np.add.reduceat(other_day, begin) if len(begin) else other_day,
        }
    )


def _medians(group: Numbers, begin: Numbers, values: Floats) -> Floats:
    """Of groups that begin at these rows."""
    ordered = values[np.lexsort((values, group))]
    count = np.diff(np.append(begin, len(values)))
    middle: Floats = (ordered[begin + (count - 1) // 2] + ordered[begin + count // 2]) / 2
    return middle


def update_typical_weeks(
    connection: Connection, now: datetime, hives: Numbers, part: int = 0
) -> None:
    """Update the weeks of those of these hives whose day has ended."""
    given = {"now": now, "weeks": TYPICAL_WEEKS, "hives": hives.tolist()}
    hours = fetch_table(connection, _HOURS, _HOUR_SCHEMA, given)
    zones = dict(zip(hours["hive_id"].to_pylist(), hours["time_zone"].to_pylist(), strict=True))
    until = dict(zip(hours["hive_id"].to_pylist(), hours["until"].to_pylist(), strict=True))
    weeks = compute_typical_weeks(
        np.asarray(hours["hive_id"]),
        np.asarray(hours["slot"].cast(pa.int64())) // SLOT_MICROS,
        np.asarray(hours["entries"]),
        np.asarray(hours["mean"]),
        HiveCalendars(zones),
    )
    made_at = pa.array([until[hive] for hive in weeks["hive_id"].to_pylist()], _UTC)
    weeks = weeks.append_column("made_at", made_at)
    if len(weeks):
        names = weeks.schema.names
        staging = create_staging_table(connection, "typical", part, _TABLE, names)
        copy_rows(connection, staging, weeks.combine_chunks().to_batches(), part=part)
        changes = {name: f"excluded.{name}" for name in names if name not in _KEYS}
        merge_rows(connection, staging, _TABLE, _KEYS, changes)
        drop_staging_table(connection, staging)
    connection.execute(_DELETE, given)


class TypicalWeekTask:
    """Periodic task: updates `typical_week` of hives whose day has ended."""

    def __init__(self, database: str) -> None:
        self._url = database

    def __call__(self, spark: SparkSession) -> None:
        with Database(self._url) as database, database.transaction() as connection:
            hives = int(str(hives_version(connection)[0]))
        tasks = max(available_tasks(spark), hives // _HIVES_PER_TASK)
        work = _TypicalWeekShards(self._url, datetime.now(UTC), 1)
        if hives <= SMALL_HIVES:
            work.update(HiveShard())
            return
        work = _TypicalWeekShards(self._url, work.now, tasks)
        spark.range(0, tasks, 1, tasks).mapInArrow(work, "shard LONG").collect()


@dataclass(frozen=True, slots=True)
class _TypicalWeekShards:
    url: str
    now: datetime
    shards: int

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in numbers:
            for number in rows["id"].to_pylist():
                self.update(HiveShard(number, self.shards))
            yield pa.RecordBatch.from_pydict({"shard": rows["id"]})

    def update(self, shard: HiveShard) -> None:
        last = -1
        with Database(self.url) as database:
            while True:
                with database.transaction() as connection:
                    hives = shard.read_ids(connection, last, _HIVES_PER_TRANSACTION)
                    if not len(hives):
                        return
                    update_typical_weeks(connection, self.now, hives, shard.number)
                last = int(hives[-1])
