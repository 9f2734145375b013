"""The nightly forecast on Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock_hives.arrays import Floats
from penstock_hives.forecast.baseline import MEDIAN_METHOD, TYPICAL_METHOD, baseline_forecast
from penstock_hives.forecast.grid import HourlyGrid, PublicHolidays, hours_of_day
from penstock_hives.forecast.histories import hive_histories, read_histories
from penstock_hives.forecast.nightly import nightly_forecast
from tests.hives.forecast.given import FIRST, SMALL, counts

# Each is several Spark jobs, whose workers take seconds to start on a busy machine.
pytestmark = pytest.mark.timeout(400)

AUCKLAND = "Pacific/Auckland"
DAYS = 120
DAY = FIRST + timedelta(days=DAYS)


def midnight(day: date = DAY, zone: str = AUCKLAND) -> datetime:
    return hours_of_day(day, zone)[0][0]


def rollup(hive: int, rows: Floats, zone: str = AUCKLAND, first: date = FIRST) -> list[Any]:
    return [
        (hive, moment, int(rows[place, hour]))
        for place in range(len(rows))
        for moment, hour in hours_of_day(first + timedelta(days=place), zone)
        if not np.isnan(rows[place, hour])
    ]


def hourly(spark: SparkSession, rows: Iterable[Any]) -> DataFrame:
    return spark.createDataFrame(list(rows), "hive_id long, slot timestamp, entries int")


def hives(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), "hive_id long, time_zone string, country string")


def collected(frame: DataFrame) -> list[Any]:
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: row[:2])


@pytest.fixture(scope="module")
def many(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """Four hives with a past, and one that is three days old."""
    rows: list[Any] = []
    for hive in range(4):
        rows += rollup(hive, counts(DAYS, seed=hive, level=40.0 * (hive + 1)))
    rows += rollup(9, counts(3), first=DAY - timedelta(days=3))
    known = [(hive, AUCKLAND, "NZ") for hive in (0, 1, 2, 3, 9)]
    return hourly(spark, rows).persist(), hives(spark, *known)


@pytest.fixture(scope="module")
def brought(many: tuple[DataFrame, DataFrame]) -> dict[str, Any]:
    with nightly_forecast(*many, DAY, midnight(), growth=SMALL) as found:
        return {
            "forecasts": collected(found.forecasts),
            "peaks": collected(found.peaks),
            "verdict": found.verdict,
            "model": found.model,
        }


def test_every_hive_has_its_next_day_forecast(brought: dict[str, Any]) -> None:
    moments = [
        (hive, moment) for hive in (0, 1, 2, 3, 9) for moment, _ in hours_of_day(DAY, AUCKLAND)
    ]
    found = [(row[0], row[1].astimezone(UTC)) for row in brought["forecasts"]]
    assert found == moments


def test_a_model_that_passed_is_published(brought: dict[str, Any]) -> None:
    assert brought["verdict"].accepted
    assert {row[4] for row in brought["forecasts"] if row[0] != 9} == {brought["model"].name}


def test_a_hive_of_three_days_shows_its_typical_week(brought: dict[str, Any]) -> None:
    assert {row[4] for row in brought["forecasts"] if row[0] == 9} == {TYPICAL_METHOD}


def test_p90_is_never_under_p50(brought: dict[str, Any]) -> None:
    assert all(row[3] >= row[2] >= 0 for row in brought["forecasts"])


def test_every_forecast_day_has_a_peak_window(brought: dict[str, Any]) -> None:
    assert [row[0] for row in brought["peaks"]] == [0, 1, 2, 3, 9]
    noon = midnight() + timedelta(hours=12)
    for _, day, _, _, starts, ends in brought["peaks"]:
        assert day == DAY
        assert starts.astimezone(UTC) <= noon < ends.astimezone(UTC)
        assert timedelta(hours=3) <= ends - starts <= timedelta(hours=5)


def test_a_night_again_gives_the_same_whatever_the_partitions_and_what_came_later(
    spark: SparkSession, brought: dict[str, Any], many: tuple[DataFrame, DataFrame]
) -> None:
    later = [
        (hive, midnight() + timedelta(hours=hour), 9999) for hive in range(4) for hour in range(48)
    ]
    more = many[0].union(hourly(spark, later)).repartition(3, "slot")
    with nightly_forecast(more, many[1], DAY, midnight(), growth=SMALL) as found:
        assert collected(found.forecasts) == brought["forecasts"]


def test_without_much_of_a_past_the_medians_are_published_and_the_reason_is_kept(
    spark: SparkSession,
) -> None:
    rows = counts(40)
    day = FIRST + timedelta(days=40)
    known = hourly(spark, rollup(1, rows))
    with nightly_forecast(known, hives(spark, (1, AUCKLAND, "NZ")), day, midnight(day)) as found:
        said = collected(found.forecasts)
        assert not found.verdict.accepted
        assert "training hours" in found.verdict.reason
        assert found.model is None
    usual = baseline_forecast(HourlyGrid(FIRST, rows), day, PublicHolidays("NZ"))
    assert usual is not None
    assert {row[4] for row in said} == {MEDIAN_METHOD}
    assert [row[2] for row in said] == usual.p50.tolist()


@pytest.mark.parametrize(("day", "hours"), [(date(2024, 4, 7), 25), (date(2024, 9, 29), 23)])
def test_a_day_on_which_clocks_change_has_all_its_hours(
    spark: SparkSession, day: date, hours: int
) -> None:
    first = day - timedelta(days=35)
    known = hourly(spark, rollup(1, counts(35, first=first), first=first))
    known_hives = hives(spark, (1, AUCKLAND, "NZ"))
    with nightly_forecast(known, known_hives, day, midnight(day)) as night:
        rows = collected(night.forecasts)
    assert [row[1].astimezone(UTC) for row in rows] == [
        each for each, _ in hours_of_day(day, AUCKLAND)
    ]
    assert len(rows) == hours


def test_a_hive_nobody_came_to_has_a_forecast_of_none_and_no_peak(spark: SparkSession) -> None:
    known = hourly(spark, rollup(1, np.zeros((40, 24))))
    day = FIRST + timedelta(days=40)
    with nightly_forecast(known, hives(spark, (1, AUCKLAND, "")), day, midnight(day)) as found:
        assert {(row[2], row[3]) for row in collected(found.forecasts)} == {(0.0, 0.0)}
        assert found.peaks.count() == 0


def test_without_any_rows_there_is_nothing_to_say(spark: SparkSession) -> None:
    none = hourly(spark, [])
    with nightly_forecast(none, hives(spark, (1, AUCKLAND, "NZ")), DAY, midnight()) as found:
        assert found.forecasts.count() == 0
        assert found.peaks.count() == 0


def grids(frame: DataFrame) -> Sequence[HourlyGrid]:
    return [
        each.grid for each in read_histories(iter(frame.orderBy("hive_id").toArrow().to_batches()))
    ]


def test_histories_are_in_the_hives_own_hours_whatever_the_sessions(spark: SparkSession) -> None:
    rows = counts(10)
    known = hourly(spark, rollup(1, rows) + rollup(2, rows, "America/New_York"))
    places = hives(spark, (1, AUCKLAND, "NZ"), (2, "America/New_York", "US"))
    day = FIRST + timedelta(days=10)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        found = grids(hive_histories(known, places, day, midnight(day, "America/New_York")))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    for grid in found:
        assert grid.first == FIRST
        assert np.array_equal(grid.counts, rows)


def test_hours_without_a_row_are_empty_unless_the_clock_had_none(spark: SparkSession) -> None:
    first = date(2024, 9, 28)
    rows = np.ones((3, 24))
    rows[2, 5] = np.nan
    known = hourly(spark, rollup(1, rows, first=first))
    day = first + timedelta(days=3)
    (grid,) = grids(hive_histories(known, hives(spark, (1, AUCKLAND, "NZ")), day, midnight(day)))
    assert grid.counts[2, 5] == 0
    assert np.isnan(grid.counts[1, 2])


def test_hours_that_had_not_ended_are_unknown(spark: SparkSession) -> None:
    known = hourly(spark, rollup(1, np.ones((3, 24))))
    day = FIRST + timedelta(days=3)
    early = midnight(day) - timedelta(hours=2, minutes=30)
    (grid,) = grids(hive_histories(known, hives(spark, (1, AUCKLAND, "NZ")), day, early))
    assert np.isfinite(grid.counts[2, :21]).all()
    assert np.isnan(grid.counts[2, 21:]).all()
