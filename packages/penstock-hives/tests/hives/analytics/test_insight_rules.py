"""Sentences about places, and what is made of sentences of people."""

from __future__ import annotations

import pickle
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from penstock_hives.analytics.insight_texts import insight_text, translate_insight
from penstock_hives.analytics.insights import HiveInsight, hive_insights
from penstock_hives.analytics.models import Insight
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
    assert insight_text(insight.kind, insight.data, "en") == (
        "The Comb is busier than before",
        "130 visits a day in the last four weeks, 100 in the four before: +30%.",
    )
    assert insight.data == {"hive": "The Comb", "now": 130.0, "before": 100.0, "change": 0.3}


TEA: dict[str, Any] = {"deal_id": 7, "deal": "Tea", "deal_expected": 100.0}
FOUND: dict[str, dict[str, Any]] = {
    "busier": {"visits_now": 1300.0},
    "quieter": {"visits_now": 50.0},
    "busiest": {"peers": 5, "peer_visits": 60.0, "rank": 1},
    "behind": {"peers": 5, "peer_visits": 300.0, "rank": 6},
    "unheard": {"coverage": 0.4},
    "praised": {"feedback": 5, "sentiment": 0.7},
    "criticised": {"feedback": 5, "sentiment": -0.7},
    "deal_worked": {**TEA, "lift": 0.3, "deal_visits": 130.0},
    "deal_failed": {**TEA, "lift": -0.3, "deal_visits": 70.0},
}


@pytest.mark.parametrize("kind", FOUND)
def test_what_stands_out_is_told(kind: str) -> None:
    assert [insight.kind for insight in told(**FOUND[kind])] == [kind]


@pytest.mark.parametrize("kind", FOUND)
def test_it_is_told_in_three_languages_with_all_its_figures(kind: str) -> None:
    (insight,) = told(**FOUND[kind])
    texts = [insight_text(kind, insight.data, locale) for locale in ("en", "de-CH", "fr")]
    assert len({title for title, _ in texts}) == len({body for _, body in texts}) == 3
    for title, body in texts:
        assert ("Tea" if kind.startswith("deal") else "The Comb") in title
        assert "{" not in title + body


def test_figures_are_written_as_in_the_language() -> None:
    (insight,) = told(**FOUND["busier"])
    assert "1,300 visits" in insight_text("busier", insight.data, "en")[1]
    assert "1.300 Besuche" in insight_text("busier", insight.data, "de")[1]
    (insight,) = told(**FOUND["criticised"])
    assert "tonalité -0,70" in insight_text("criticised", insight.data, "fr")[1]


def test_an_insight_without_figures_is_told_as_it_is_stored() -> None:
    stored = Insight(1, 2, "busier", date(2026, 3, 9), "Busier", "By far.", 0.5, {})
    assert translate_insight(stored, "de") == ("Busier", "By far.")


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
