"""What follows from days of hives, step by step."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from penstock_hives.analytics import recommendations as r
from penstock_hives.analytics.formula import Formula
from penstock_hives.analytics.insights import make_insights
from penstock_hives.analytics.metrics import CustomMetric, DealRun, metric_values
from penstock_hives.analytics.recommendations import recommendations
from penstock_hives.analytics.trends import (
    DEAL_SCHEMA,
    deal_effects,
    hive_comparison,
    hive_popularity,
    preference_shifts,
)
from tests.hives.analytics.given import DAY, a_day, frame, rows

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def test_what_people_do_makes_a_hive_popular(spark: SparkSession) -> None:
    days = frame(
        spark,
        [
            a_day(1, 0, views=10),
            a_day(2, 0, views=10, favourites=3),
            a_day(2, 6, searches=4, visits=50),
            a_day(3, 7, views=9999),  # the day before the window
        ],
    )
    found = hive_popularity(days, DAY, 7)
    columns = ("rank", "hive_id", "views", "searches", "favourites", "visits")
    assert rows(found, *columns) == [(1, 2, 10, 4, 3, 50), (2, 1, 10, 0, 0, 0)]


def test_tastes_are_shares_of_interest_now_and_before(spark: SparkSession) -> None:
    days = frame(
        spark,
        [
            a_day(1, 7, "cafe", views=3),
            a_day(2, 7, "bar", views=1),
            a_day(1, 0, "cafe", views=1),
            a_day(2, 0, "bar", searches=3, visits=999),  # a visit is not a search
            a_day(3, 30, "gym", views=50),  # before both windows
        ],
    )
    found = preference_shifts(days, DAY, 7)
    assert rows(found, "hive_type", "share_before", "share_now") == [
        ("bar", 0.25, 0.75),
        ("cafe", 0.75, 0.25),
    ]


def test_windows_are_compared_by_the_day_that_was_heard_of(spark: SparkSession) -> None:
    days = frame(
        spark,
        [
            *(a_day(1, ago, visits=100, mean_occupancy=10.0) for ago in range(7, 14)),
            *(a_day(1, ago, visits=120, mean_occupancy=15.0) for ago in (0, 3)),
            a_day(1, 5, views=8),  # a day without figures: it counts for nothing
        ],
    )
    found = hive_comparison(days, DAY, 7)
    columns = ("visits_now", "visits_before", "occupancy_now", "occupancy_before")
    assert rows(found, *columns) == [(120.0, 100.0, 15.0, 10.0)]


def test_a_hive_is_compared_with_others_of_its_type(spark: SparkSession) -> None:
    visits = {1: 10, 2: 20, 3: 30, 4: 90}
    days = frame(spark, [a_day(hive, 0, visits=count) for hive, count in visits.items()])
    days = days.unionByName(frame(spark, [a_day(9, 0, "bar", visits=500)]))
    found = hive_comparison(days, DAY, 7)
    assert rows(found, "hive_id", "peers", "peer_visits", "rank") == [
        (1, 3, 30.0, 4),
        (2, 3, 30.0, 3),
        (3, 3, 20.0, 2),
        (4, 3, 20.0, 1),
        (9, 0, None, 1),
    ]


def test_a_deal_is_measured_by_the_same_weekdays_before(spark: SparkSession) -> None:
    saturdays = [a_day(1, 7 * week + 1, visits=200) for week in range(1, 5)]
    sundays = [a_day(1, 7 * week, visits=80) for week in range(1, 5)]
    days = frame(spark, [*saturdays, *sundays, a_day(1, 1, visits=250), a_day(1, 0, visits=100)])
    deals = frame(
        spark,
        [
            {"deal_id": 5, "hive_id": 1, "title": "Tea", "first": DAY - timedelta(days=1),
             "last": DAY + timedelta(days=9), "opened": 7, "redeemed": 3},
            {"deal_id": 6, "hive_id": 2, "title": "Cake", "first": DAY, "last": DAY, "opened": 0,
             "redeemed": 0},  # of a hive nobody counts in
            {"deal_id": 7, "hive_id": 1, "title": "Soon", "first": DAY + timedelta(days=2),
             "last": DAY + timedelta(days=3), "opened": 0, "redeemed": 0},
        ],
        DEAL_SCHEMA,
    )  # fmt: skip
    found = deal_effects(days, deals, DAY)
    columns = ("deal_id", "days", "visits", "expected", "lift", "opened", "redeemed")
    assert rows(found, *columns) == [(5, 2, 175.0, 140.0, 0.25, 7, 3)]


def test_nothing_is_expected_where_nothing_was_counted(spark: SparkSession) -> None:
    days = frame(spark, [a_day(1, 0, visits=50)])
    deal = {"deal_id": 5, "hive_id": 1, "title": "Tea", "first": DAY, "last": DAY}
    deals = frame(spark, [{**deal, "opened": 0, "redeemed": 0}], DEAL_SCHEMA)
    found = deal_effects(days, deals, DAY)
    assert rows(found, "visits", "expected", "lift") == [(50.0, None, None)]


def test_a_business_has_figures_of_its_own(spark: SparkSession) -> None:
    days = frame(
        spark,
        [
            a_day(1, 0, visits=100, peak=40, deal_redemptions=5),
            a_day(1, 1, visits=60, peak=50),
            a_day(1, 8, visits=999),  # outside the window
            a_day(2, 0, visits=10, peak=5),
            a_day(3, 0, account=2, visits=70, peak=7),  # another's
        ],
    )
    runs = {5: DealRun(1, DAY, DAY)}
    metrics = [
        CustomMetric(1, 1, "visits / deal_redemptions", {}, 30.0, 7),
        CustomMetric(2, 1, "peak", {"hives": [2]}, 6.0, 7),
        CustomMetric(3, 1, "visits", {"weekdays": [5]}, None, 7),  # DAY is a Sunday
        CustomMetric(4, 1, "visits", {"deal": 5}, None, 7),
        CustomMetric(5, 1, "visits", {"deal": 99}, None, 7),
        CustomMetric(6, 1, "__import__('os')", {}, None, 7),
    ]
    found = metric_values(spark, days, metrics, runs, DAY, NOW)
    told = [
        tuple(row) for row in found.select("metric_id", "hive_id", "value", "goal_met").collect()
    ]
    assert sorted(told, key=lambda row: row[:2]) == [
        (1, 1, 32.0, True),
        (1, 2, None, None),
        (2, 2, 5.0, False),
        (3, 1, 60.0, None),
        (4, 1, 100.0, None),
    ]


def test_formulas_are_evaluated_as_arithmetic_is(spark: SparkSession) -> None:
    figures = {"visits": 100.0, "peak": 8.0, "views": 0.0, "sentiment": -0.5}
    expected = {
        "visits": 100.0,
        "visits / peak": 12.5,
        "visits / peak / 5": 2.5,
        "100 - visits - 1": -1.0,
        "2 + 3 * peak": 26.0,
        "(2 + 3) * peak": 40.0,
        "-sentiment * 2": 1.0,
        "min(visits, peak, 50)": 8.0,
        "max(visits, peak) - abs(sentiment)": 99.5,
        "visits / views": None,
        "visits / (peak - 8)": None,
        "0.1 + 0.2": 0.30000000000000004,
    }
    columns = [f.lit(value).alias(name) for name, value in figures.items()]
    series = {name: f.col(name) for name in figures}
    made = [Formula.parse(text).column(series) for text in expected]
    (row,) = spark.range(1).select(*columns).select(*made).collect()
    for text, value, wanted in zip(expected, row, expected.values(), strict=True):
        assert value == wanted or math.isclose(value, wanted), text  # type: ignore[arg-type]


def test_without_metrics_there_are_no_values(spark: SparkSession) -> None:
    assert metric_values(spark, frame(spark, []), [], {}, DAY, NOW).collect() == []


@pytest.fixture(scope="module")
def town(spark: SparkSession) -> dict[str, list[tuple[int, str]]]:
    """Who is recommended what, and why."""
    deals = [
        {"deal_id": 1, "hive_id": 1, "hive_type": "cafe", "kind": "discount", "taken": 0},
        {"deal_id": 2, "hive_id": 2, "hive_type": "bar", "kind": "daily", "taken": 10},
        {"deal_id": 3, "hive_id": 3, "hive_type": "gym", "kind": "promotion", "taken": 0},
    ]
    names = {1: "likes", 2: "asks", 3: "does", 4: "nothing", 5: "had it"}
    people = [
        {"user_id": user, "kinds": ["promotion"] if user == 2 else [], "hive_types": []}
        for user in names
    ]
    places = [
        {"user_id": 1, "hive_id": 1, "favourite": True},
        {"user_id": 1, "hive_id": 3, "favourite": False},
    ]
    deeds = [
        *({"user_id": 3, "hive_type": "cafe", "action": "deal_redeem"} for _ in range(3)),
        {"user_id": 3, "hive_type": "gym", "action": "view"},
    ]
    done = [{"user_id": 5, "deal_id": 2}]
    found = recommendations(
        frame(spark, deals, r.DEAL_SCHEMA),
        frame(spark, people, r.USER_SCHEMA),
        frame(spark, places, r.USER_HIVE_SCHEMA),
        frame(spark, deeds, r.ACTION_SCHEMA),
        frame(spark, done, r.CLOSED_DEAL_SCHEMA),
    ).collect()
    told: dict[str, list[tuple[int, str]]] = {name: [] for name in names.values()}
    for row in sorted(found, key=lambda row: -row.score):
        told[names[row.user_id]].append((row.deal_id, row.reason))
    return told


def test_a_favourites_deal_comes_first(town: dict[str, list[tuple[int, str]]]) -> None:
    assert town["likes"] == [
        (1, "A favourite of yours offers it"),
        (3, "You have been there"),
        (2, "Many take it up now"),
    ]


def test_what_somebody_asked_for_is_recommended(town: dict[str, list[tuple[int, str]]]) -> None:
    assert town["asks"][0] == (3, "You asked for deals like this")


def test_what_somebody_does_shows_what_they_like(town: dict[str, list[tuple[int, str]]]) -> None:
    assert town["does"] == [(1, "You like places of this kind"), (2, "Many take it up now")]


def test_who_is_not_known_gets_what_others_take(town: dict[str, list[tuple[int, str]]]) -> None:
    assert town["nothing"] == [(2, "Many take it up now")]


def test_what_was_had_is_not_recommended_again(town: dict[str, list[tuple[int, str]]]) -> None:
    assert town["had it"] == []


def test_what_stands_out_is_put_in_words(spark: SparkSession) -> None:
    days = frame(
        spark,
        [
            *(a_day(1, ago, visits=100, coverage=0.5) for ago in range(28, 56)),
            *(a_day(1, ago, visits=130, coverage=0.5) for ago in range(28)),
            a_day(1, 2, feedback=4, sentiment=-0.6),
            *(a_day(2, ago, visits=100, coverage=1.0) for ago in range(56)),
        ],
    )
    deals = frame(spark, [], DEAL_SCHEMA)
    compared = hive_comparison(days, DAY, 28)
    found = make_insights(days, compared, deal_effects(days, deals, DAY), deals, DAY)
    assert rows(found, "hive_id", "kind", "title") == [
        (1, "busier", "Hive 1 is busier than before"),
        (1, "criticised", "People speak badly of Hive 1"),
        (1, "unheard", "Hive 1 had no data part of the time"),
    ]
