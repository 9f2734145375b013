"""Silver on Spark: the same rows as without it, and tables made of them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock_hives.occupancy import sensor_states, silver_dataframe
from penstock_hives.occupancy.profiles import SensorProfiles
from penstock_hives.occupancy.schemas import Quality
from penstock_hives.occupancy.sensor_states import SENSOR_STATE_SCHEMA
from penstock_hives.sensors.fleet import Fleet, Quirks
from tests.hives.occupancy.sensed import messages_of, profiles_of, run

MONDAY = datetime(2026, 3, 9, tzinfo=UTC)
QUIRKS = Quirks(restarts=1.0, duplicates=0.02, late=0.02, corrupt=0.01, scrambled=0.002)


class Fed:
    """Half a day of a small fleet, in Spark and out of it."""

    def __init__(self, spark: SparkSession) -> None:
        fleet = Fleet(start=MONDAY, seed=4, hives=6, quirks=QUIRKS)
        batches = list(messages_of(fleet, MONDAY + timedelta(hours=30)))
        self.spark = spark
        self.profiles: SensorProfiles = profiles_of(fleet)
        self.table = pa.Table.from_batches(batches).combine_chunks()
        self.frame = self.messages(self.table)
        self.rows = silver_dataframe.silver(
            self.frame, self.profiles, sensor_states.empty_states()
        ).cache()
        self.plain, self.state = run(self.table.to_batches(), self.profiles)

    def messages(self, table: pa.Table) -> DataFrame:
        # More partitions than workers, and no sensor in only one of them.
        return self.spark.createDataFrame(table).repartition(3)


@pytest.fixture(scope="module")
def fed(spark: SparkSession) -> Fed:
    return Fed(spark)


def told(rows: DataFrame) -> list[tuple[Any, ...]]:
    found = rows.where("part = 'report'")
    columns = ("offset", "delta_in", "delta_out", "missed", "quality")
    return sorted(map(tuple, found.select(*columns).collect()))


def test_spark_counts_what_is_counted_without_it(fed: Fed) -> None:
    assert told(fed.rows) == fed.plain


def test_two_steps_give_what_one_gives(fed: Fed) -> None:
    decoded = silver_dataframe.decode(fed.frame, fed.profiles)
    assert (
        told(silver_dataframe.with_deltas(decoded, fed.profiles, sensor_states.empty_states()))
        == fed.plain
    )


def test_no_message_is_lost(fed: Fed) -> None:
    also = "letter.reason <=> 'impossible_date'"  # beside the row of the report
    found = fed.rows.where(f"part not in ('state', 'notice') and not {also}").select("offset")
    assert sorted(found.toArrow()["offset"].to_pylist()) == list(range(len(fed.table)))


def test_states_are_those_of_all_sensors_that_counted(fed: Fed) -> None:
    found = silver_dataframe.states(fed.rows).toArrow().cast(SENSOR_STATE_SCHEMA).sort_by("sensor")
    assert found.equals(fed.state.sort_by("sensor"))


def test_the_next_batch_goes_on_from_the_states(fed: Fed) -> None:
    middle = len(fed.table) // 2
    first = silver_dataframe.silver(
        fed.messages(fed.table.slice(0, middle)), fed.profiles, sensor_states.empty_states()
    )
    kept = silver_dataframe.states(first).toArrow().cast(SENSOR_STATE_SCHEMA)
    then = silver_dataframe.silver(fed.messages(fed.table.slice(middle)), fed.profiles, kept)
    assert told(first) + told(then) == fed.plain


def test_reports_have_the_columns_of_silver_and_no_copies(fed: Fed) -> None:
    found = silver_dataframe.reports(fed.rows)
    wanted = ["stream", "offset", "received_at", "day", "sensor", "hive_id", "kind", "report_type"]
    wanted += ["device_time", "at", "quality", "counter", "total_in", "total_out"]
    assert found.columns == [*wanted, "delta_in", "delta_out", "missed", "raw"]
    copies = sum(1 for row in fed.plain if row[4] & Quality.DUPLICATE)
    assert copies > 0
    assert found.count() == len(fed.plain) - copies
    assert {row.day for row in found.select("day").distinct().collect()} == {
        date(2026, 3, 9),
        date(2026, 3, 10),
    }


def test_restarts_are_a_kind_of_their_own(fed: Fed) -> None:
    kinds = {
        row.kind for row in silver_dataframe.reports(fed.rows).select("kind").distinct().collect()
    }
    assert kinds == {"report", "restart", "event"}


def test_events_statuses_and_dead_letters_are_tables(fed: Fed) -> None:
    assert silver_dataframe.events(fed.rows).where("delta_in + delta_out = 1").count() > 0
    assert (
        silver_dataframe.statuses(fed.rows).where("battery > 3000 and firmware = '1.4.2.0'").count()
        > 0
    )
    reasons = {
        row.reason for row in silver_dataframe.dead_letters(fed.rows).select("reason").collect()
    }
    assert {"too_short", "too_long", "unknown_type"} <= reasons


def test_device_times_are_wall_clocks_and_others_moments(fed: Fed) -> None:
    types = dict(silver_dataframe.reports(fed.rows).dtypes)
    assert types["device_time"] == "timestamp_ntz"
    assert types["at"] == types["received_at"] == "timestamp"


def test_a_batch_without_messages_is_none(fed: Fed) -> None:
    nothing = fed.messages(fed.table.slice(0, 0))
    assert silver_dataframe.silver(nothing, fed.profiles, sensor_states.empty_states()).count() == 0


def test_statuses_only_count_nothing(fed: Fed) -> None:
    keys = pc.ends_with(fed.table["routing_key"], ".status")
    rows = silver_dataframe.silver(
        fed.messages(fed.table.filter(keys)), fed.profiles, sensor_states.empty_states()
    )
    parts = {row.part for row in rows.select("part").distinct().collect()}
    assert parts <= {"status", "dead_letter"}
