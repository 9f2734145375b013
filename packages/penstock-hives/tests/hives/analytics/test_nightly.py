"""A night, from PostgreSQL to PostgreSQL and the lake."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from penstock_hives.analytics.nightly import AnalyticsTask, analyse, settled_day
from penstock_hives.analytics.tables import FLOW, is_analysed
from penstock_spark.lake import Lake, StorageLocation
from penstock_store import Database
from tests.databases import copy_of

DAY = date(2026, 5, 31)
NOW = datetime(2026, 6, 1, 13, tzinfo=UTC)

_TOWN = """
    INSERT INTO account (id, name) VALUES (1, 'Bees Ltd');
    INSERT INTO hive_type (id, code, name) VALUES (1, 'cafe', 'Café');
    INSERT INTO hive (id, account_id, hive_type_id, name, time_zone)
    VALUES (1, 1, 1, 'The Comb', 'Pacific/Auckland'), (2, 1, 1, 'Nectar', 'UTC');
    INSERT INTO app_user (id, firebase_uid) VALUES (1, 'ada');
    INSERT INTO user_hive (user_id, hive_id, favourite) VALUES (1, 1, true);
    INSERT INTO kpi_day (hive_id, day, visits, mean_occupancy, peak, coverage)
    SELECT 1, '2026-05-31'::date - n, CASE WHEN n < 28 THEN 150 ELSE 100 END, 20, 40, 1
    FROM generate_series(0, 55) n;
    INSERT INTO occupancy_day (hive_id, day, entries, exits) VALUES (1, '2026-05-31', 150, 149);
    INSERT INTO deal (id, hive_id, title, kind, starts_at, expires_at)
    VALUES (9, 1, 'Two for one', 'discount', '2026-05-30T00:00Z', '2026-07-01T00:00Z');
    INSERT INTO user_message (id, user_id, hive_id, type, content, created_at) VALUES
        (1, 1, 1, 'feedback', 'I love it, wonderful coffee!', '2026-05-30T20:00Z'),
        (2, 1, 1, 'feedback', 'Terrible noise and rude people.', '2026-05-30T21:00Z'),
        (3, 1, 1, 'support', 'I love it', '2026-05-30T21:00Z');
    INSERT INTO user_analytics (user_id, session_id, action, hive_id, at) VALUES
        (1, 's', 'view', 1, '2026-05-30T13:00Z'), (NULL, 't', 'view', 2, '2026-05-31T13:00Z'),
        (NULL, 't', 'search', 1, '2026-05-31T11:00Z');
    INSERT INTO custom_metric (id, account_id, name, formula, goal, window_days)
    VALUES (1, 1, 'views a visit', 'views / visits * 1000', 1, 7);
"""


@pytest.fixture(scope="module")
def town(embedded_template: str) -> Iterator[Database]:
    with copy_of(embedded_template) as url, Database(url) as database:
        database.execute(_TOWN)
        yield database


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> StorageLocation:
    return StorageLocation.parse(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="module")
def written(spark: SparkSession, town: Database, lake: StorageLocation) -> dict[str, int]:
    return analyse(spark, town, DAY, NOW, lake=lake)


@pytest.mark.slow
def test_a_night_fills_every_table(written: dict[str, int], town: Database) -> None:
    assert written == {
        "hive_popularity": 6,  # two hives, three windows
        "preference_shift": 3,
        "hive_comparison": 2,
        "deal_effect": 1,
        "custom_metric_value": 2,
        "deal_recommendation": 1,
        "insight": 1,
    }
    for table, rows in written.items():
        assert town.rows(f"SELECT count(*) AS n FROM {table}")[0]["n"] == rows


@pytest.mark.slow
@pytest.mark.usefixtures("written")
def test_deeds_are_counted_by_the_hives_own_day(town: Database) -> None:
    # In Auckland the view at 13:00 UTC on the 30th was on the 31st.
    found = town.rows(
        "SELECT hive_id, views, searches, visits, rank FROM hive_popularity"
        " WHERE window_days = 1 ORDER BY rank"
    )
    assert [tuple(row.values()) for row in found] == [(1, 1, 1, 150, 1), (2, 1, 0, 0, 2)]


@pytest.mark.slow
@pytest.mark.usefixtures("written")
def test_feedback_is_scored_and_summed_up(town: Database) -> None:
    found = town.rows("SELECT sentiment_label FROM user_message ORDER BY id")
    assert [row["sentiment_label"] for row in found] == ["positive", "negative", None]
    (day,) = town.rows("SELECT hive_id, day, messages, positive, negative FROM feedback_day")
    assert tuple(day.values()) == (1, DAY, 2, 1, 1)


@pytest.mark.slow
@pytest.mark.usefixtures("written")
def test_findings_are_what_they_should_be(town: Database) -> None:
    (effect,) = town.rows("SELECT days, visits, expected FROM deal_effect")
    assert tuple(effect.values()) == (2, 150.0, pytest.approx(137.5))
    values = town.rows("SELECT value, goal_met FROM custom_metric_value ORDER BY hive_id")
    assert [row["value"] for row in values] == [pytest.approx(1000 / 1050), None]
    (deal,) = town.rows("SELECT user_id, deal_id, reason FROM deal_recommendation")
    assert tuple(deal.values()) == (1, 9, "A favourite of yours offers it")
    told = town.rows("SELECT kind, title FROM insight ORDER BY weight DESC")
    assert [row["kind"] for row in told] == ["busier"]


@pytest.mark.slow
def test_the_lake_has_the_same(
    spark: SparkSession, written: dict[str, int], lake: StorageLocation
) -> None:
    for table, rows in written.items():
        assert Lake.open(lake, FLOW).read(spark, f"gold.{table}").count() == rows


@pytest.mark.slow
def test_the_same_night_again_changes_nothing(
    spark: SparkSession, written: dict[str, int], town: Database, lake: StorageLocation
) -> None:
    before = town.rows("SELECT kind, title, body FROM insight ORDER BY 1")
    assert is_analysed(town, DAY)
    assert analyse(spark, town, DAY, NOW, lake=lake) == written
    assert town.rows("SELECT kind, title, body FROM insight ORDER BY 1") == before
    assert Lake.open(lake, FLOW).read(spark, "gold.insight").count() == written["insight"]


def test_a_day_that_was_done_is_left_alone(spark: SparkSession, town: Database) -> None:
    day = settled_day(datetime.now(UTC))
    with town.transaction() as connection:
        connection.execute(
            "INSERT INTO pipeline_batch (flow, batch_id, rows) VALUES (%s, %s, 0)"
            " ON CONFLICT DO NOTHING",
            (FLOW, day.toordinal()),
        )
    AnalyticsTask(town.url)(spark)
    assert town.rows("SELECT 1 FROM hive_popularity WHERE day = %s", (day,)) == []


@pytest.mark.parametrize(("hours", "ago"), [(11.9, 2), (12.0, 1), (23.9, 1)])
def test_a_day_is_over_when_it_is_over_everywhere(hours: float, ago: int) -> None:
    midnight = datetime(2026, 6, 1, tzinfo=UTC)
    found = settled_day(midnight + timedelta(hours=hours))
    assert found == midnight.date() - timedelta(days=ago)
