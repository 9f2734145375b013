"""Silver in the lake: one pass, and the tables in it."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.hives import readings
from penstock.hives.flow import HivesFlow
from penstock.hives.sensors.fleet import Quirks
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
    line = Line.laid(spark, database, tmp_path, Quirks(corrupt=0.02), days=0.3)
    line.apply([])
    rows = line.lake.read(spark, readings.READINGS)
    assert rows.where("part IN ('report', 'status', 'dead_letter')").count() == len(line.frames)
    for table in ("statuses", "dead_letters"):
        apart = line.lake.read(spark, f"silver.{table}").drop("batch")
        within = readings.read(line.lake, spark, table)
        assert apart.count() == within.count() > 0
        assert apart.exceptAll(within).count() == 0
    letters = line.table("dead_letter_count", "sum(count) AS count, 1")
    assert letters[0]["count"] == readings.read(line.lake, spark, "dead_letters").count()


def test_a_flow_can_be_sent_to_where_it_is_to_work() -> None:
    flow = HivesFlow("postgresql://postgres@127.0.0.1/hives", "amqp://localhost", None)
    again = pickle.loads(pickle.dumps(flow))
    assert (again.name, again.streams) == ("hives", "sensors*")
