"""Forecasts when they are due, by each hive's own clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from penstock_hives.forecast.schedule import due_hives, make_forecasts
from penstock_store import Database
from tests.hives.forecast.given import FIRST, counts
from tests.hives.forecast.test_nightly import midnight, rollup

pytestmark = pytest.mark.timeout(400)

DAYS = 20
DAY = FIRST + timedelta(days=DAYS)
#: Three in the morning, in Auckland.
NIGHT = midnight(DAY) + timedelta(hours=3)


@pytest.fixture
def counted(inn: Database) -> Database:
    """Hive 7, with some weeks behind it."""
    with inn.transaction() as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO occupancy_hour (hive_id, slot, entries) VALUES (%s, %s, %s)",
            rollup(7, counts(DAYS)),
        )
    return inn


def test_a_hive_is_due_in_its_own_night_and_at_once_for_its_first_forecast(
    counted: Database,
) -> None:
    early = midnight(DAY) + timedelta(hours=1)
    assert due_hives(counted, early) == {DAY: {7}}
    with counted.transaction() as connection:
        connection.execute(
            "INSERT INTO forecast (hive_id, slot, model, made_at, p50, p90) "
            "VALUES (7, %(at)s, 'm', %(at)s, 1, 2)",
            {"at": early - timedelta(days=1)},
        )
    assert due_hives(counted, early) == {}
    assert due_hives(counted, NIGHT) == {DAY: {7}}


def test_a_hive_nobody_was_counted_in_lately_is_not_due(counted: Database) -> None:
    assert due_hives(counted, NIGHT + timedelta(days=40)) == {}


def test_on_demand_the_hour_does_not_matter(counted: Database) -> None:
    assert due_hives(counted, midnight(DAY) + timedelta(minutes=5), anyway=True) == {DAY: {7}}


def test_a_night_that_was_done_is_not_due_again(spark: SparkSession, counted: Database) -> None:
    done = make_forecasts(spark, counted, DAY, {7}, NIGHT)
    assert (done.hives, done.hours) == (1, 24)
    assert due_hives(counted, NIGHT + timedelta(hours=4)) == {}
    assert due_hives(counted, NIGHT + timedelta(days=1)) == {DAY + timedelta(days=1): {7}}
    (kept,) = counted.rows("SELECT min(slot) AS first, max(made_at) AS made FROM forecast")
    assert kept["first"] == midnight(DAY)
    assert kept["made"].astimezone(UTC) == NIGHT.astimezone(UTC)
    assert datetime.now(UTC) > kept["made"]


def test_a_hive_whose_first_day_goes_on_is_due_on_demand_only(counted: Database) -> None:
    noon = midnight(FIRST) + timedelta(hours=12)
    assert due_hives(counted, noon) == {}
    assert due_hives(counted, noon, anyway=True) == {FIRST: {7}}
