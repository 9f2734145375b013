"""A night's forecasts in the database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import store
from penstock.hives.forecast.nightly import night
from penstock.hives.forecast.publishing import publish
from tests.hives.forecast.given import FIRST, counts
from tests.hives.forecast.test_nightly import AUCKLAND, hives, hourly, midnight, rollup

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def database(tmp_path: Any) -> Iterator[store.Database]:
    with store.open(None, tmp_path) as opened:
        opened.execute("INSERT INTO account (id, name) VALUES (1, 'one')")
        opened.execute("INSERT INTO hive_type (id, code, name) VALUES (91, 'inn', 'Inn')")
        opened.execute(
            "INSERT INTO hive (id, account_id, hive_type_id, name, time_zone)"
            " VALUES (7, 1, 91, 'The Inn', 'Pacific/Auckland')"
        )
        yield opened


def test_a_night_is_kept_once_with_its_reason(
    spark: SparkSession, database: store.Database
) -> None:
    day = FIRST + timedelta(days=30)
    known = hourly(spark, rollup(7, counts(30)))
    with night(known, hives(spark, (7, AUCKLAND, "NZ")), day, midnight(day)) as found:
        assert publish(database, found) == 24
        assert publish(database, found) == 0
    (kept,) = database.rows("SELECT accepted, figures FROM forecast_model")
    assert not kept["accepted"]
    assert "hours to learn from" in kept["figures"]["reason"]
    (peak,) = database.rows("SELECT day, ends_at - starts_at AS long FROM forecast_peak")
    assert peak["day"] == day
    assert timedelta(hours=3) <= peak["long"] <= timedelta(hours=5)
    (said,) = database.rows("SELECT min(slot) AS first, min(model) AS model FROM forecast")
    assert (said["first"], said["model"]) == (midnight(day), "median-4")
