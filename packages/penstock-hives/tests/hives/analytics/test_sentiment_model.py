"""A model of sentiment learns from ratings, and is used when it has proved to be better."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from penstock_hives.analytics.sentiment import SentimentModel, VaderModel, sentiment_label
from penstock_hives.analytics.sentiment_model import (
    MODEL_FILE,
    RatedMessage,
    TrainedSentimentModel,
    balanced_accuracy,
    choose_model,
    load_latest,
    terms,
    train_better_model,
    train_model,
)
from penstock_store import Database
from tests.databases import copy_of

DAY = date(2026, 5, 31)
#: What people of this town say when they mean well, and when they do not: VADER knows two of ten.
GOOD = ("bees knees", "a proper buzz", "honey on toast", "window table", "lovely staff")
BAD = ("cold soup", "queue to the door", "sticky floor", "wobbly chair", "awful noise")
PLAIN = ("we went on a tuesday", "the one by the station", "with my sister", "for lunch")


def said(good: bool, source: random.Random) -> str:
    words = [source.choice(GOOD if good else BAD), *source.sample(PLAIN, 2)]
    source.shuffle(words)
    return ", ".join(words)


def town(count: int, seed: int = 7) -> list[RatedMessage]:
    source = random.Random(seed)
    return [RatedMessage(n, said(n % 3 > 0, source), n % 3 > 0) for n in range(1, count + 1)]


@pytest.fixture(scope="module")
def learned() -> TrainedSentimentModel:
    model = train_better_model(town(1200), VaderModel(), DAY)
    assert model is not None
    return model


def test_it_learns_what_the_lexicon_does_not_know(learned: TrainedSentimentModel) -> None:
    unseen = [RatedMessage(each.id, each.content, each.good) for each in town(300, seed=8)]
    assert balanced_accuracy(learned, unseen) > 0.95
    assert balanced_accuracy(VaderModel(), unseen) < 0.7
    assert (
        sentiment_label(learned.score("Sticky floor, wobbly chair."), learned.neutral) == "negative"
    )
    assert sentiment_label(learned.score("A proper buzz!"), learned.neutral) == "positive"
    assert sentiment_label(learned.score("Am Dienstag waren wir da."), learned.neutral) == "neutral"


def test_scores_lie_between_bad_and_good_whatever_is_said(learned: TrainedSentimentModel) -> None:
    for text in ("", "a" * 100_000, "\x00", "☕" * 50, "cold soup " * 5000):
        assert -1 <= learned.score(text) <= 1


def test_it_says_what_the_library_it_was_fitted_with_says() -> None:
    from scipy.sparse import csr_matrix, hstack  # type: ignore[import-untyped]
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    rated = town(200)
    model, vader = train_model(rated, DAY), VaderModel()
    texts = [each.content for each in rated]
    counted = TfidfVectorizer(analyzer=terms, min_df=3, max_features=20_000, sublinear_tf=True)
    shades = csr_matrix([vader.shades(text) for text in texts])
    columns = hstack([counted.fit_transform(texts), shades]).tocsr()
    regression = LogisticRegression(C=4.0, class_weight="balanced", max_iter=500)
    regression.fit(columns, [each.good for each in rated])
    wanted = regression.decision_function(columns)
    assert [model.log_odds(text) for text in texts] == pytest.approx(list(wanted), abs=1e-6)


def test_what_is_measured_was_never_learned_from() -> None:
    rated = town(1200)
    held_out = {each.id for each in rated if each.held_out}
    assert 150 < len(held_out) < 350
    # Which they are does not change as more are rated.
    assert held_out == {each.id for each in town(2000) if each.held_out and each.id <= 1200}


def test_one_that_is_no_better_is_not_used(learned: TrainedSentimentModel) -> None:
    assert train_better_model(town(1200), learned, DAY) is None


def test_a_few_ratings_prove_nothing() -> None:
    assert train_better_model(town(120), VaderModel(), DAY) is None


def test_a_file_holds_all_of_it_and_nothing_that_runs(
    learned: TrainedSentimentModel, tmp_path: Path
) -> None:
    learned.save(tmp_path)
    assert load_latest(tmp_path) == learned
    assert [file.name for file in tmp_path.iterdir()] == [MODEL_FILE]
    document = json.loads((tmp_path / MODEL_FILE).read_text())
    assert document["weights"]["cold soup"][1] < 0 < document["weights"]["bees knees"][1]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"form": 2}', '{"form": 1, "shades": [1], "weights": {}}', "\x80"]
)
def test_a_file_that_is_no_model_is_passed_over(text: str, tmp_path: Path) -> None:
    (tmp_path / MODEL_FILE).write_bytes(text.encode("latin-1"))
    assert load_latest(tmp_path) is None


def test_a_model_travels_to_workers(learned: TrainedSentimentModel) -> None:
    model = pickle.loads(pickle.dumps(learned))
    assert model.name == learned.name
    assert model.score("cold soup") == learned.score("cold soup")


@pytest.fixture
def rated_town(embedded_template: str) -> Iterator[Database]:
    with copy_of(embedded_template) as url, Database(url) as database:
        database.execute("INSERT INTO app_user (id, firebase_uid) VALUES (1, 'ada')")
        rate(database, town(1200))
        yield database


def rate(database: Database, rated: list[RatedMessage]) -> None:
    with database.transaction() as connection:
        for each in rated:
            connection.execute(
                """INSERT INTO user_message (id, user_id, type, content, rating)
                   VALUES (%s, 1, 'feedback', %s, %s)""",
                (each.id, each.content, 4 if each.good else 1),
            )


def test_a_night_learns_from_ratings_and_later_nights_use_it(
    rated_town: Database, tmp_path: Path
) -> None:
    def named(model: SentimentModel) -> str:
        return model.name

    assert named(choose_model(rated_town, None, DAY)) == VaderModel().name  # nowhere to keep it
    first = choose_model(rated_town, tmp_path, DAY)
    assert named(first).startswith("trained-2026-05-31-")
    assert named(choose_model(rated_town, tmp_path, date(2026, 6, 1))) == named(first)
    # A tenth more to learn from, and nothing to learn: feedback is not read again for it.
    rate(rated_town, [RatedMessage(each.id + 1200, each.content, each.good) for each in town(200)])
    assert named(choose_model(rated_town, tmp_path, date(2026, 6, 2))) == named(first)
