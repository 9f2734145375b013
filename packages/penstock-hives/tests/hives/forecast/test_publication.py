"""A night's forecasts in the database."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

import penstock_store
from penstock_hives.forecast.nightly import nightly_forecast
from penstock_hives.forecast.schedule import publish_forecast
from tests.hives.forecast.given import FIRST, counts
from tests.hives.forecast.test_nightly import AUCKLAND, hives, hourly, midnight, rollup

pytestmark = pytest.mark.timeout(400)


def test_a_night_is_kept_once_with_its_reason(
    spark: SparkSession, inn: penstock_store.Database
) -> None:
    day = FIRST + timedelta(days=30)
    known = hourly(spark, rollup(7, counts(30)))
    with nightly_forecast(known, hives(spark, (7, AUCKLAND, "NZ")), day, midnight(day)) as found:
        assert publish_forecast(inn, found) == 24
        assert publish_forecast(inn, found) == 0
    (kept,) = inn.rows("SELECT accepted, figures FROM forecast_model")
    assert not kept["accepted"]
    assert "training hours" in kept["figures"]["reason"]
    (peak,) = inn.rows("SELECT day, ends_at - starts_at AS long FROM forecast_peak")
    assert peak["day"] == day
    assert timedelta(hours=3) <= peak["long"] <= timedelta(hours=5)
    (said,) = inn.rows("SELECT min(slot) AS first, min(model) AS model FROM forecast")
    assert (said["first"], said["model"]) == (midnight(day), "median-4")
