"""A fleet's frames through the whole flow: what the devices counted is what the tables say."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock_hives.sensors.fleet import Fleet, Quirks
from penstock_store import Database
from tests.hives.occupancy.gold.fleets import Line, gold


def counted_by_hive(fleet: Fleet) -> dict[int, tuple[int, int]]:
    """What a reader can know: entries and exits."""
    hive_of = {sensor.serial: sensor.hive_id for sensor in fleet.sensors}
    found: dict[int, tuple[int, int]] = {}
    for row in fleet.ledger().to_pylist():
        entries, exits = found.get(hive_of[row["sensor"]], (0, 0))
        found[hive_of[row["sensor"]]] = (entries + row["known_in"], exits + row["known_out"])
    return found


def test_what_devices_counted_is_in_the_tables(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    line = Line.laid(spark, database, tmp_path, Quirks.none())
    line.apply([len(line.frames) // 3])
    for table in ("occupancy_5min", "occupancy_hour", "occupancy_day"):
        rows = line.table(
            f"(SELECT hive_id, sum(entries) AS entries, sum(exits) AS exits FROM {table} "
            "GROUP BY hive_id) AS sums"
        )
        assert {row["hive_id"]: (row["entries"], row["exits"]) for row in rows} == counted_by_hive(
            line.fleet
        )
    assert len(line.table("hive_status")) == len(line.fleet.hives)
    assert line.lake.read(spark, "silver.reports").count() > 0


def test_a_replay_in_other_batches_gives_the_same_tables(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    line = Line.laid(spark, database, tmp_path, Quirks(), days=1.5, hives=4)
    count = len(line.frames)
    line.apply([count // 7, count // 7 + 20, count // 2, count - 300])
    live = gold(line)
    assert line.flow.begin_rebuild(1, 3) == 0
    line.apply([count * 2 // 3], generation=1)
    assert gold(line) == live
    database.execute("UPDATE occupancy_5min SET entries = entries + 1 WHERE hive_id = 1")
    database.execute("UPDATE hive_status SET occupancy = 999 WHERE hive_id = 1")
    line.flow.adopt(1)
    assert gold(line) == live
    line.flow.adopt(1)
    assert [row["batch_id"] for row in line.table("pipeline_batch", "batch_id, flow")] == [0, 1]


def test_a_batch_that_broke_off_after_silver_is_applied_as_if_it_had_not(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock_hives.occupancy.gold.ledger import OccupancyLedger

    line = Line.laid(spark, database, tmp_path, Quirks(), days=0.5)
    middle = len(line.frames) // 2
    line.flow.apply(line.batch(0, 0, middle))
    with monkeypatch.context() as patched:
        patched.setattr(OccupancyLedger, "apply", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            line.flow.apply(line.batch(1, middle, len(line.frames)))
    before = gold(line)
    line.flow.apply(line.batch(1, middle, len(line.frames)))
    after = gold(line)
    assert after != before
    line.flow.apply(line.batch(1, middle, len(line.frames)))
    assert gold(line) == after
    rows = line.lake.read(spark, "silver.reports")
    assert rows.select("stream", "offset").distinct().count() == rows.count()
    assert {row.batch for row in rows.select("batch").distinct().collect()} == {0, 1}
