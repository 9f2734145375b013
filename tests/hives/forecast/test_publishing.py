"""A night's forecasts in the database."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from penstock import store
from penstock.hives.forecast.nightly import night
from penstock.hives.forecast.publishing import publish
from tests.hives.forecast.given import FIRST, counts
from tests.hives.forecast.test_nightly import AUCKLAND, hives, hourly, midnight, rollup

pytestmark = pytest.mark.timeout(400)


def test_a_night_is_kept_once_with_its_reason(spark: SparkSession, inn: store.Database) -> None:
    day = FIRST + timedelta(days=30)
    known = hourly(spark, rollup(7, counts(30)))
    with night(known, hives(spark, (7, AUCKLAND, "NZ")), day, midnight(day)) as found:
        assert publish(inn, found) == 24
        assert publish(inn, found) == 0
    (kept,) = inn.rows("SELECT accepted, figures FROM forecast_model")
    assert not kept["accepted"]
    assert "hours to learn from" in kept["figures"]["reason"]
    (peak,) = inn.rows("SELECT day, ends_at - starts_at AS long FROM forecast_peak")
    assert peak["day"] == day
    assert timedelta(hours=3) <= peak["long"] <= timedelta(hours=5)
    (said,) = inn.rows("SELECT min(slot) AS first, min(model) AS model FROM forecast")
    assert (said["first"], said["model"]) == (midnight(day), "median-4")
