"""The steps of the flow as functions from DataFrames to DataFrames.

    lake = Lake.open("/var/lib/penstock/lake", "hives")
    messages = lake.read(spark, "bronze.messages", days=(date(2026, 11, 1), date(2026, 11, 30)))
    sensors, hives = steps.read_sensors(spark, url), steps.read_hives(spark, url)

    decoded = steps.decode(messages, sensors)
    counted = steps.count(decoded, sensors)
    slots = steps.occupancy(steps.sum_slots(counted), hives)
    hours = steps.hours(slots, hives)
    days, kpis = steps.days(hours, hives), steps.kpis(hours, hives)
    week = steps.typical_week(hours, hives)

They call the functions that the live flow calls, and give its rows. The live flow continues from
the states of sensors and hives that the database has; these begin with the first message. Manual
counts are not applied, and neither are nightly resets after the last report of a hive.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock_hives.arrays import Numbers
from penstock_hives.occupancy.calendars import HiveCalendars, ResetSchedule
from penstock_hives.occupancy.counts import count_reports
from penstock_hives.occupancy.decoder import decode_messages, resolve_receipt_times
from penstock_hives.occupancy.gold.anchors import NO_RESET, due_resets
from penstock_hives.occupancy.gold.tables import day_rows, hour_rows, kpi_rows
from penstock_hives.occupancy.profiles import PROFILE_SCHEMA, SensorProfile, SensorProfiles
from penstock_hives.occupancy.rollups import (
    OccupancyRollup,
    OpeningShares,
    compute_kpis,
    concat_rollups,
    roll_up_days,
    roll_up_hours,
)
from penstock_hives.occupancy.schemas import (
    DECODED_SCHEMA,
    SILVER_REPORT_SCHEMA,
    UNCOUNTED,
    SilverPart,
)
from penstock_hives.occupancy.sensor_states import SENSOR_STATE_SCHEMA
from penstock_hives.occupancy.silver import as_decoded, count_rows
from penstock_hives.occupancy.slots import (
    EMPTY,
    NO_LEVELS,
    SLOT_MICROS,
    Anchors,
    SlotCounts,
    SlotOccupancy,
    anchor_slots,
    compute_occupancy,
    merge_counts,
)
from penstock_hives.occupancy.typical_weeks import compute_typical_weeks
from penstock_hives.partitions import read_partitioned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Groups of sensors, or of hives, that are computed together.
_GROUPS: Final = 64
_GROUP: Final = "_group"
_UTC: Final = pa.timestamp("us", "UTC")
HIVE_SCHEMA: Final = pa.schema(
    [
        ("hive_id", pa.int64()),
        ("time_zone", pa.string()),
        ("reset_time", pa.string()),  # local: 04:00:00
        ("opening_hours", pa.string()),  # JSON: {"mon": [["09:00", "17:00"]], …}
        ("capacity", pa.int64()),
    ]
)
_COUNTED_SCHEMA: Final = pa.schema(
    [each for each in SILVER_REPORT_SCHEMA if each.name not in ("day", "batch")]
)
_ROLLUP: Final = [
    *((name, pa.int64()) for name in ("entries", "exits", "occupancy_end", "peak")),
    ("mean", pa.float64()),
]
_SLOT_SCHEMA: Final = pa.schema([("hive_id", pa.int64()), ("slot", _UTC), *_ROLLUP[:-1]])
_HOUR_SCHEMA: Final = pa.schema([("hive_id", pa.int64()), ("slot", _UTC), *_ROLLUP])
_DAY_SCHEMA: Final = pa.schema(
    [("hive_id", pa.int64()), ("day", pa.date32()), *_ROLLUP, ("peak_at", _UTC)]
)
_KPI_SCHEMA: Final = pa.schema(
    [
        *(("hive_id", pa.int64()), ("day", pa.date32()), ("visits", pa.int64())),
        *((name, pa.float64()) for name in ("mean_occupancy", "mean_percent")),
        *(("peak", pa.int64()), ("peak_hour", pa.int64()), ("coverage", pa.float64())),
    ]
)
_WEEK_SCHEMA: Final = pa.schema(
    [
        *((name, pa.int64()) for name in ("hive_id", "weekday", "hour")),
        *((name, pa.float64()) for name in ("entries", "occupancy")),
        ("weeks", pa.int64()),
    ]
)


def read_sensors(spark: SparkSession, url: str) -> DataFrame:
    """The sensors of a database, as `decode` and `count` need them."""
    query = """
        SELECT s.id, s.serial, s.hive_id, h.time_zone, s.protocol, s.profile, s.direction_swapped
        FROM sensor s JOIN hive h ON h.id = s.hive_id
        WHERE s.state <> 'retired' AND s.id %% %(shares)s = %(share)s
    """

    def fetch(connection: Any, statement: str, parameters: Any, schema: pa.Schema) -> pa.Table:
        rows = connection.execute(statement, parameters).fetchall()
        return SensorProfiles.of(SensorProfile.from_row(row) for row in rows).table

    return read_partitioned(spark, url, query, PROFILE_SCHEMA, {}, fetch)


def read_hives(spark: SparkSession, url: str) -> DataFrame:
    """The hives of a database, as the other steps need them."""
    query = """
        SELECT id AS hive_id, time_zone, reset_time::text, opening_hours::text, capacity
        FROM hive WHERE id %% %(shares)s = %(share)s
    """
    return read_partitioned(spark, url, query, HIVE_SCHEMA, {})


def decode(messages: DataFrame, sensors: DataFrame) -> DataFrame:
    """Messages of bronze to decoded rows: reports, statuses and dead letters, by `part`.

    The sensors, about a hundred bytes each, are sent to every task.
    """
    profiles = SensorProfiles(sensors.toArrow())
    names = ("stream", "offset", "timestamp", "routing_key", "body", "headers")

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            known = resolve_receipt_times(pa.Table.from_batches([batch]))
            for rows in as_decoded(known):
                yield from decode_messages(rows, profiles)

    return messages.select(*names).mapInArrow(work, _spark_schema(DECODED_SCHEMA))


def count(decoded: DataFrame, sensors: DataFrame) -> DataFrame:
    """What each report and event adds, in the order of the stream: rows of `silver.reports`."""
    from pyspark.sql import functions as f

    profiles = SensorProfiles(sensors.toArrow())
    none = SENSOR_STATE_SCHEMA.empty_table()

    def work(rows: pa.Table) -> pa.Table:
        rows = rows.select(DECODED_SCHEMA.names).cast(DECODED_SCHEMA)
        reports, statuses = (
            rows.filter(pc.equal(rows["part"], part.value)).combine_chunks()
            for part in (SilverPart.REPORT, SilverPart.STATUS)
        )
        counted = count_rows(reports, count_reports(reports, statuses, profiles, none))
        return counted.select(_COUNTED_SCHEMA.names).cast(_COUNTED_SCHEMA)

    known = decoded.where(f.col("part") != SilverPart.DEAD_LETTER.value)
    grouped = known.groupBy(f.pmod(f.hash("sensor"), f.lit(_GROUPS)))
    return grouped.applyInArrow(work, _spark_schema(_COUNTED_SCHEMA))


def sum_slots(counted: DataFrame) -> DataFrame:
    """Entries and exits by hive and slot of five minutes; `received_at` is the last receipt."""
    from pyspark.sql import functions as f

    slot = f.timestamp_micros(f.floor(f.unix_micros("at") / SLOT_MICROS) * SLOT_MICROS)
    return (
        counted.where(f.col("quality").bitwiseAND(int(UNCOUNTED)) == 0)
        .groupBy("hive_id", slot.alias("slot"))
        .agg(
            f.sum("delta_in").cast("long").alias("entries"),
            f.sum("delta_out").cast("long").alias("exits"),
            f.max("received_at").alias("received_at"),
        )
    )


def occupancy(slots: DataFrame, hives: DataFrame) -> DataFrame:
    """Occupancy at the end of slots, with nightly resets: rows of `occupancy_5min`."""

    def work(rows: pa.Table, known: _Hives) -> pa.Table:
        hive, slot, entries, exits, received = (
            _numbers(rows[name]) for name in ("hive_id", "slot", "entries", "exits", "received_at")
        )
        counts = merge_counts([SlotCounts(hive, slot // SLOT_MICROS, entries, exits)])
        anchors = known.resets(counts, hive, received)
        every = merge_counts([counts, anchor_slots(anchors)])
        found = compute_occupancy(every, anchors, NO_LEVELS)
        return pa.table(
            {
                "hive_id": every.hive,
                "slot": pa.array(every.slot * SLOT_MICROS).cast(_UTC),
                "entries": every.entries,
                "exits": every.exits,
                "occupancy_end": found.end,
                "peak": found.peak,
            }
        )

    return _by_hive(slots, hives, work, _SLOT_SCHEMA)


def hours(slots: DataFrame, hives: DataFrame) -> DataFrame:
    """Rollups by local hour: rows of `occupancy_hour`."""

    def work(rows: pa.Table, known: _Hives) -> pa.Table:
        hive, slot, *others = (_numbers(rows[name]) for name in _SLOT_SCHEMA.names)
        entries, exits, end, peak = others
        counts = SlotCounts(hive, slot // SLOT_MICROS, entries, exits)
        found = SlotOccupancy(counts, end, peak, EMPTY)
        return hour_rows(roll_up_hours(found, NO_LEVELS, known.calendars))

    return _by_hive(slots, hives, work, _HOUR_SCHEMA)


def days(hours: DataFrame, hives: DataFrame) -> DataFrame:
    """Rollups by local day: rows of `occupancy_day`."""

    def work(rows: pa.Table, known: _Hives) -> pa.Table:
        return day_rows(roll_up_days(_hours_of(rows), NO_LEVELS, known.calendars))

    return _by_hive(hours, hives, work, _DAY_SCHEMA)


def kpis(hours: DataFrame, hives: DataFrame) -> DataFrame:
    """Figures of each local day, also of the last one: rows of `kpi_day`."""

    def work(rows: pa.Table, known: _Hives) -> pa.Table:
        found = compute_kpis(_hours_of(rows), NO_LEVELS, known.calendars, known.opening_shares)
        return kpi_rows(found, known.capacity_of(found.hive))

    return _by_hive(hours, hives, work, _KPI_SCHEMA)


def typical_week(hours: DataFrame, hives: DataFrame) -> DataFrame:
    """Medians of these hours by local weekday and hour: rows of `typical_week`."""

    def work(rows: pa.Table, known: _Hives) -> pa.Table:
        found = _hours_of(rows)
        return compute_typical_weeks(
            found.hive, found.name, found.entries.astype(np.float64), found.mean, known.calendars
        )

    return _by_hive(hours, hives, work, _WEEK_SCHEMA)


class _Hives:
    """The hives of a group."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = {row["hive_id"]: row for row in rows.to_pylist()}
        self.calendars = HiveCalendars({hive: row["time_zone"] for hive, row in self._rows.items()})

    @property
    def opening_shares(self) -> OpeningShares:
        return OpeningShares(
            {hive: json.loads(row["opening_hours"]) for hive, row in self._rows.items()}
        )

    def capacity_of(self, hives: Numbers) -> Numbers:
        return np.array([self._rows[hive]["capacity"] or 0 for hive in hives.tolist()], np.int64)

    def resets(self, counts: SlotCounts, hive: Numbers, received: Numbers) -> Anchors:
        """Nightly resets between the first slot and the last report of each hive."""
        found = []
        for each, first in zip(counts.hive[counts.firsts], counts.slot[counts.firsts], strict=True):
            row = self._rows[int(each)]
            schedule = ResetSchedule(
                row["time_zone"],
                time.fromisoformat(row["reset_time"]),
                json.loads(row["opening_hours"]),
            )
            last = int(received[hive == each].max())
            begin = int(first) * SLOT_MICROS
            for _, at in due_resets(schedule, last, begin, NO_RESET, NO_RESET):
                found.append((int(each), at))
        hives, ats = np.array(found, np.int64).reshape(-1, 2).T
        return Anchors(hives, ats, np.zeros(len(hives), np.int64))


def _by_hive(
    rows: DataFrame,
    hives: DataFrame,
    work: Callable[[pa.Table, _Hives], pa.Table],
    schema: pa.Schema,
) -> DataFrame:
    """Groups of hives with their rows, in order of time."""
    from pyspark.sql import functions as f

    group = f.pmod(f.hash("hive_id"), f.lit(_GROUPS))

    def apply(left: pa.Table, right: pa.Table) -> pa.Table:
        if not len(left) or not len(right):
            return schema.empty_table()
        left = left.filter(pc.is_in(left["hive_id"], value_set=right["hive_id"]))
        ordered = left.sort_by([("hive_id", "ascending"), ("slot", "ascending")])
        return work(ordered, _Hives(right)).select(schema.names).cast(schema)

    pairs = rows.groupBy(group.alias(_GROUP)).cogroup(hives.groupBy(group.alias(_GROUP)))
    return pairs.applyInArrow(apply, _spark_schema(schema))


def _hours_of(rows: pa.Table) -> OccupancyRollup:
    hive, slot, entries, exits, end, peak = (
        _numbers(rows[name]) for name in _HOUR_SCHEMA.names[:-1]
    )
    name = slot // SLOT_MICROS
    length = np.full(len(name), 12, np.int64)
    area = np.rint(np.asarray(rows["mean"]) * 12).astype(np.int64)
    return concat_rollups(
        [OccupancyRollup(hive, name, entries, exits, end, peak, name, area, length)]
    )


def _numbers(column: pa.ChunkedArray) -> Numbers:
    return np.asarray(column.cast(pa.int64()))


def _spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)
