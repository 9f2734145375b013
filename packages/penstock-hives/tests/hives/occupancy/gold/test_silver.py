"""Silver in the lake: one pass, and the tables in it."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock_hives.occupancy import silver, writer
from penstock_hives.occupancy.flow import HivesFlow
from penstock_hives.occupancy.sensor_states import SENSOR_STATE_SCHEMA
from penstock_hives.sensors.fleet import Fleet, Quirks
from penstock_hives.sensors.protocol.messages import EVENT_LENGTH
from penstock_store import Database
from tests.hives.occupancy.gold.fleets import START, Line, gold
from tests.hives.occupancy.sensed import after, messages_of, profiles_of


def test_every_message_is_in_one_of_the_tables(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    # Every fifth restart is told of before the device knows the date.
    quirks = Quirks(corrupt=0.02, duplicates=0.0, restarts=5.0)
    line = Line.laid(spark, database, tmp_path, quirks, days=0.3)
    line.apply([])
    found = {
        name: line.lake.read(spark, f"silver.{name}").collect()
        for name in ("reports", "statuses", "dead_letters")
    }
    letters = found["dead_letters"]
    dateless = [row for row in letters if row.reason == "impossible_date"]
    bad = [row for row in letters if row.reason != "impossible_date"]
    offsets = [row.offset for rows in (found["reports"], found["statuses"], bad) for row in rows]
    assert sorted(offsets) == list(range(len(line.frames)))
    # What has an impossible date counts, and is found among the dead letters: once, as it came.
    counted = [(row.offset, row.raw) for row in found["reports"] if row.device_time is None]
    counted = [each for each in counted if len(each[1]) != EVENT_LENGTH]
    assert sorted((row.offset, row.raw) for row in dateless) == sorted(counted) != []
    (told,) = line.table("dead_letter_count", "sum(count) AS count, 1")
    assert told["count"] == len(letters) > len(dateless)


def test_a_batch_of_which_there_is_nothing_in_a_table_has_no_entry_there(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    line = Line.laid(spark, database, tmp_path, Quirks(corrupt=0.02), days=0.1)
    line.flow.apply(line.batch(0, 0, len(line.frames)))
    assert line.lake.read(spark, "silver.dead_letters").count() > 0
    database.execute("DELETE FROM pipeline_batch")

    line.flow.apply(line.batch(0, 0, 1))  # as a try that had less

    assert line.lake.table("silver.dead_letters").files() == []


def test_shares_of_several_tasks_are_those_of_one(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line.laid(spark, database, tmp_path, Quirks(), days=0.4)
    line.apply([])
    alone = gold(line), line.lake.read(spark, "silver.reports").drop("batch").collect()
    monkeypatch.setattr(writer, "SMALL_BATCH", 10)
    monkeypatch.setattr(writer, "_TASK_ROWS", 100)
    monkeypatch.setattr(writer, "available_tasks", lambda _: 3)
    line.flow.begin_rebuild(1, 0)

    line.apply([], generation=1)
    line.flow.adopt(1)

    parted = line.lake.at(1)
    assert len(parted.table("silver.reports").files()) == 3
    assert gold(line) == alone[0]
    found = parted.read(spark, "silver.reports").drop("batch").collect()
    assert sorted(found, key=str) == sorted(alone[1], key=str)


def test_two_batches_give_the_rows_and_states_of_one() -> None:
    quirks = Quirks(restarts=1.0, duplicates=0.02, late=0.02, corrupt=0.01, scrambled=0.002)
    fleet = Fleet(start=START, seed=4, hives=6, quirks=quirks)
    messages = pa.Table.from_batches(messages_of(fleet, START + timedelta(hours=30)))
    profiles, none = profiles_of(fleet), SENSOR_STATE_SCHEMA.empty_table()
    whole, summary = silver.make_silver(messages.to_batches(), profiles, none)

    middle = len(messages) // 2
    first, earlier = silver.make_silver(messages.slice(0, middle).to_batches(), profiles, none)
    states = after(none, earlier.states.combine_chunks().to_batches()[0])
    second, later = silver.make_silver(messages.slice(middle).to_batches(), profiles, states)
    states = after(states, later.states.combine_chunks().to_batches()[0])

    for name, rows in whole.items():
        parts = pa.concat_tables([first[name], second[name]])
        assert parts.sort_by("offset").equals(rows.sort_by("offset"))
    assert states.sort_by("sensor").equals(summary.states.sort_by("sensor"))
    assert set(whole["silver.reports"]["kind"].to_pylist()) == {"report", "restart", "event"}
    reasons = set(whole["silver.dead_letters"]["reason"].to_pylist())
    assert {"too_short", "too_long", "unknown_type"} <= reasons


def test_no_messages_give_no_rows() -> None:
    fleet = Fleet(start=START, seed=4, hives=1)
    tables, summary = silver.make_silver([], profiles_of(fleet), SENSOR_STATE_SCHEMA.empty_table())
    assert [len(rows) for rows in tables.values()] == [0, 0, 0]
    assert len(summary.states) == len(summary.notices) == len(summary.counts) == 0


def test_a_flow_can_be_sent_to_where_it_is_to_work() -> None:
    flow = HivesFlow("postgresql://postgres@127.0.0.1/hives", "amqp://localhost", None)
    again = pickle.loads(pickle.dumps(flow))
    assert (again.name, again.streams) == ("hives", "sensors*")
