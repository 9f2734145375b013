"""Sentiment of feedback: a score between -1 and 1 for each message, and sums per day.

`SentimentModel` is the interface. Messages are scored again when the model name changes. The
default is VADER, a lexicon for English; unknown words are neutral. A model trained on ratings
(`sentiment_model`) replaces it where it is better.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from penstock_hives.partitions import read_partitioned
from penstock_store import Database, copy_rows, create_staging_table, drop_staging_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: Only the beginning of longer texts is scored.
MAX_CHARACTERS: Final = 4000


class SentimentModel(Protocol):
    """Small and picklable: it loads its data in the process that uses it."""

    @property
    def name(self) -> str: ...

    @property
    def neutral(self) -> float:
        """Scores closer to 0 than this are neutral."""

    def score(self, text: str) -> float:
        """From -1, bad, to 1, good."""


class VaderModel:
    def __init__(self) -> None:
        self._analyser: Any = None

    @property
    def name(self) -> str:
        return "vader-3.3.2"

    @property
    def neutral(self) -> float:
        return 0.05  # the authors' value

    def score(self, text: str) -> float:
        return self.shades(text)[0]

    def shades(self, text: str) -> tuple[float, float, float]:
        """Compound score, and the positive and negative shares."""
        if self._analyser is None:
            from vaderSentiment.vaderSentiment import (  # type: ignore[import-untyped]
                SentimentIntensityAnalyzer,
            )

            self._analyser = SentimentIntensityAnalyzer()
        found = self._analyser.polarity_scores(text[:MAX_CHARACTERS])
        return float(found["compound"]), float(found["pos"]), float(found["neg"])

    def __getstate__(self) -> dict[str, Any]:
        return {"_analyser": None}


def sentiment_label(score: float, neutral: float) -> str:
    if abs(score) < neutral:
        return "neutral"
    return "positive" if score > 0 else "negative"


SCORED_SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("sentiment", pa.float32()),
        ("sentiment_label", pa.string()),
        ("model_version", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class ScoringStep:
    """For `mapInArrow`: `id` and `content` in, `SCORED_SCHEMA` out."""

    model: SentimentModel

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            scores = [self.model.score(text) for text in batch["content"].to_pylist()]
            yield pa.RecordBatch.from_pydict(
                {
                    "id": batch["id"],
                    "sentiment": scores,
                    "sentiment_label": [
                        sentiment_label(score, self.model.neutral) for score in scores
                    ],
                    "model_version": [self.model.name] * len(scores),
                },
                SCORED_SCHEMA,
            )


_MESSAGES: Final = pa.schema([("id", pa.int64()), ("content", pa.string())])
_UNSCORED: Final = """
    SELECT id, content FROM user_message
    WHERE type = 'feedback' AND model_version IS DISTINCT FROM %(model)s
      AND id %% %(shares)s = %(share)s
"""
_UPDATE_MESSAGES: Final = """
    UPDATE user_message message
    SET sentiment = scored.sentiment, sentiment_label = scored.sentiment_label,
        model_version = scored.model_version
    FROM staging."analytics.{batch}.user_message" scored
    WHERE message.id = scored.id
"""
#: Local days; all days of the model's messages are computed again.
_DAYS: Final = """
    INSERT INTO feedback_day AS stored
        (hive_id, day, messages, positive, negative, sentiment, model, made_at)
    SELECT m.hive_id, (m.created_at AT TIME ZONE h.time_zone)::date, count(*),
           count(*) FILTER (WHERE sentiment_label = 'positive'),
           count(*) FILTER (WHERE sentiment_label = 'negative'),
           avg(m.sentiment), %(model)s, %(now)s
    FROM user_message m JOIN hive h ON h.id = m.hive_id
    WHERE m.type = 'feedback' AND m.model_version = %(model)s
    GROUP BY 1, 2
    ON CONFLICT (hive_id, day) DO UPDATE SET
        messages = excluded.messages, positive = excluded.positive, negative = excluded.negative,
        sentiment = excluded.sentiment, model = excluded.model, made_at = excluded.made_at
    WHERE (stored.messages, stored.sentiment, stored.model)
        IS DISTINCT FROM (excluded.messages, excluded.sentiment, excluded.model)
"""


def unscored_messages(spark: SparkSession, url: str, model: SentimentModel) -> DataFrame:
    """Feedback that this model has not scored: id, content."""
    return read_partitioned(spark, url, _UNSCORED, _MESSAGES, {"model": model.name})


def score_messages(messages: DataFrame, model: SentimentModel) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    return messages.mapInArrow(ScoringStep(model), from_arrow_schema(SCORED_SCHEMA))


def score_feedback(
    spark: SparkSession, database: Database, model: SentimentModel, day: date, now: datetime
) -> int:
    """Score new feedback and update its days in one transaction; returns the messages."""
    rows = score_messages(unscored_messages(spark, database.url, model), model).toArrow()
    with database.transaction() as connection:
        staging = create_staging_table(
            connection, "analytics", day.toordinal(), "user_message", rows.schema.names
        )
        count = copy_rows(connection, staging, rows.to_batches(), part=0)
        connection.execute(_UPDATE_MESSAGES.format(batch=day.toordinal()))
        drop_staging_table(connection, staging)
        connection.execute(_DAYS, {"model": model.name, "now": now})
    return count
