"""Silver in the lake: one pass, and the tables in it."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.hives import readings
from penstock.hives.flow import HivesFlow
from penstock.hives.sensors.fleet import Quirks
from penstock.hives.steps import silver
from penstock.store import Database
from tests.hives.gold.fleets import Line

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def test_a_message_may_say_when_it_was_received(spark: SparkSession) -> None:
    told = str(int(NOON.timestamp() * 1000))
    headers = [{"x-received-at": told}, {"x-received-at": "yesterday"}, {}, None]
    later = datetime(2026, 3, 5, tzinfo=UTC)
    frame = spark.createDataFrame(
        [(number, later, each) for number, each in enumerate(headers)],
        "number int, timestamp timestamp, headers map<string, string>",
    )
    rows = readings.received(frame).selectExpr("number", "unix_micros(timestamp) AS at").collect()
    found = [datetime.fromtimestamp(row["at"] / 1e6, UTC) for row in sorted(rows)]
    assert found == [NOON, later, later, later]


def test_every_message_is_in_one_of_the_tables(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    quirks = Quirks(corrupt=0.02, duplicates=0.0)
    line = Line.laid(spark, database, tmp_path, quirks, days=0.3)
    line.apply([])
    names = ("reports", "statuses", "dead_letters")
    offsets = [
        row.offset
        for name in names
        for row in line.lake.read(spark, f"silver.{name}").select("offset").collect()
    ]
    assert sorted(offsets) == list(range(len(line.frames)))
    letters = line.table("dead_letter_count", "sum(count) AS count, 1")
    assert letters[0]["count"] == line.lake.read(spark, "silver.dead_letters").count() > 0
    assert not list((line.lake.root / ".carried").iterdir())


def test_tables_that_were_not_written_before_a_crash_are_written_after_it(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line.laid(spark, database, tmp_path, Quirks(corrupt=0.02), days=0.1)
    whole = line.batch(0, 0, len(line.frames))
    with monkeypatch.context() as patched:
        patched.setattr(readings, "write_apart", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            line.flow.apply(whole)
    line.flow.apply(whole)
    again = line.lake.read(spark, "silver.dead_letters").collect()
    readings.write_apart_again(whole, line.flow.desk.before(0, 0).profiles)
    assert sorted(line.lake.read(spark, "silver.dead_letters").collect()) == sorted(again)
    assert line.table("dead_letter_count", "sum(count) AS count, 1")[0]["count"] == len(again)


def test_a_worker_makes_what_the_step_in_one_frame_makes(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    line = Line.laid(spark, database, tmp_path, Quirks(), days=0.4)
    before = line.flow.desk.before(0, 0)
    assert before.states is not None
    messages = line.messages(0, len(line.frames), 0)
    rows = silver.silver(messages, before.profiles, before.states)
    line.apply([])
    reports = line.lake.read(spark, "silver.reports")
    columns = silver.reports(rows).columns
    assert reports.select(columns).exceptAll(silver.reports(rows)).count() == 0
    assert reports.count() == silver.reports(rows).count()


def test_a_flow_can_be_sent_to_where_it_is_to_work() -> None:
    flow = HivesFlow("postgresql://postgres@127.0.0.1/hives", "amqp://localhost", None)
    again = pickle.loads(pickle.dumps(flow))
    assert (again.name, again.streams) == ("hives", "sensors*")
