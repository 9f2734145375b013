"""The steps on a month of bronze, in a notebook: the rows of the live flow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock_hives.occupancy import steps
from penstock_hives.sensors.fleet import Quirks
from penstock_store import Database
from tests.hives.occupancy.gold.fleets import Line


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select(*columns).collect())


def test_the_steps_give_the_tables_of_the_flow(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    line = Line.laid(spark, database, tmp_path, Quirks(restarts=1.0, corrupt=0.01), days=1.3)
    count = len(line.frames)
    line.apply([count // 3, count // 2])
    messages = line.lake.read(spark, "bronze.messages")
    sensors = steps.read_sensors(spark, database.url)
    hives = steps.read_hives(spark, database.url)

    decoded = steps.decode(messages, sensors)
    counted = steps.count(decoded, sensors).persist()
    slots = steps.occupancy(steps.sum_slots(counted), hives).persist()
    hours = steps.hours(slots, hives).persist()

    report = ("sensor", "offset", "delta_in", "delta_out", "quality", "missed", "kind")
    assert rows(counted, *report) == rows(line.lake.read(spark, "silver.reports"), *report)
    assert decoded.where("part = 'dead_letter'").count() > 0
    for name, frame, key in (
        ("occupancy_5min", slots, "slot"),
        ("occupancy_hour", hours, "slot"),
        ("occupancy_day", steps.days(hours, hives), "day"),
    ):
        columns = ("hive_id", key, "entries", "exits", "occupancy_end", "peak")
        stored = [tuple(row.values()) for row in line.table(name, ", ".join(columns))]
        found = listed(frame, key, columns)
        # The last night may follow the last report of a hive.
        assert sum(row[2] for row in found) == sum(row[2] for row in stored) > 0
        assert len(stored) - 6 <= len(found) <= len(stored)
        if name == "occupancy_5min":
            assert set(found) <= set(stored)
    kpis = {(row.hive_id, row.day): row.visits for row in steps.kpis(hours, hives).collect()}
    for row in line.table("kpi_day"):
        assert kpis[row["hive_id"], row["day"]] == row["visits"]
    week = steps.typical_week(hours, hives).collect()
    assert {row.weeks for row in week} == {1}
    assert sum(row.entries for row in week) == sum(row.entries for row in hours.collect())


def listed(frame: DataFrame, key: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    order = [("hive_id", "ascending"), (key, "ascending")]
    rows = frame.toArrow().select(list(columns)).sort_by(order).to_pylist()
    return [tuple(row.values()) for row in rows]
