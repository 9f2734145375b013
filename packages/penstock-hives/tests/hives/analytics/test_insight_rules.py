"""Sentences about places, and what is made of sentences of people."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from penstock_hives.analytics.insights import HiveInsight, hive_insights
from penstock_hives.analytics.sentiment import (
    SCORED_SCHEMA,
    ScoringStep,
    VaderModel,
    sentiment_label,
)

QUIET: dict[str, Any] = {
    "hive": "The Comb",
    "hive_type": "cafe",
    "visits_now": 100.0,
    "visits_before": 100.0,
    "peers": 0,
    "peer_visits": None,
    "rank": 1,
    "coverage": 1.0,
    "feedback": 0,
    "sentiment": None,
    "deal_id": None,
    "deal": None,
    "lift": None,
    "deal_visits": None,
    "deal_expected": None,
}


def told(**figures: Any) -> list[HiveInsight]:
    return hive_insights({**QUIET, **figures})


def test_an_ordinary_month_is_not_worth_a_word() -> None:
    assert told() == []


@pytest.mark.parametrize(
    "figures",
    [
        {"visits_now": 9.0, "visits_before": 3.0},  # a handful of people
        {"visits_now": 110.0},  # within what weeks differ by
        {"visits_before": None},
        {"visits_before": 0.0},
        {"peers": 2, "peer_visits": 50.0, "rank": 1},  # two others are no crowd
        {"feedback": 2, "sentiment": -0.9},
        {"feedback": 9, "sentiment": 0.1},
        {"deal": "Tea", "lift": 0.05, "deal_expected": 100.0, "deal_visits": 105.0},
        {"coverage": None},
    ],
)
def test_small_differences_say_nothing(figures: dict[str, Any]) -> None:
    assert told(**figures) == []


def test_growth_is_told_with_its_figures() -> None:
    (insight,) = told(visits_now=130.0)
    assert insight.title == "The Comb is busier than before"
    assert insight.body == (
        "130 visits a day in the last four weeks, 100 in the four before: +30%."
    )
    assert insight.data == {"now": 130.0, "before": 100.0, "change": 0.3}


@pytest.mark.parametrize(
    ("figures", "kind"),
    [
        ({"visits_now": 50.0}, "quieter"),
        ({"peers": 5, "peer_visits": 60.0, "rank": 1}, "busiest"),
        ({"peers": 5, "peer_visits": 300.0, "rank": 6}, "behind"),
        ({"coverage": 0.4}, "unheard"),
        ({"feedback": 5, "sentiment": 0.7}, "praised"),
        ({"feedback": 5, "sentiment": -0.7}, "criticised"),
        ({"deal": "Tea", "lift": 0.3, "deal_expected": 100.0, "deal_visits": 130.0}, "deal_worked"),
        ({"deal": "Tea", "lift": -0.3, "deal_expected": 100.0, "deal_visits": 70.0}, "deal_failed"),
    ],
)
def test_what_stands_out_is_told(figures: dict[str, Any], kind: str) -> None:
    assert [insight.kind for insight in told(**figures)] == [kind]


def test_the_larger_the_difference_the_more_it_weighs() -> None:
    (some,), (more,) = told(visits_now=130.0), told(visits_now=180.0)
    assert more.weight > some.weight


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The coffee was wonderful and the staff were lovely!", "positive"),
        ("Awful. Dirty tables, rude staff, never again.", "negative"),
        ("We went on a Tuesday.", "neutral"),
        ("Furchtbar laut hier.", "neutral"),  # English only, and it says nothing about the rest
        ("", "neutral"),
    ],
)
def test_vader_tells_praise_from_blame(text: str, wanted: str) -> None:
    model = VaderModel()
    score = model.score(text)
    assert -1 <= score <= 1
    assert sentiment_label(score, model.neutral) == wanted


def test_a_model_travels_to_workers_and_says_its_name() -> None:
    model = VaderModel()
    model.score("fine")
    scoring = pickle.loads(pickle.dumps(ScoringStep(model)))
    messages = pa.RecordBatch.from_pydict({"id": [7], "content": ["I love this place"]})
    (scored,) = scoring(iter([messages]))
    assert scored.schema == SCORED_SCHEMA
    (row,) = scored.to_pylist()
    assert (row["id"], row["sentiment_label"], row["model_version"]) == (7, "positive", model.name)
