"""Feedback with its sentiment: messages are scored by workers, days are summed up."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.hives.analytics.frames import shared
from penstock.hives.analytics.sentiment import SCORED, Scoring, Sentiment
from penstock.store import Database, discard, fill, stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MESSAGES: Final = pa.schema([("id", pa.int64()), ("content", pa.string())])
_UNSCORED: Final = """
    SELECT id, content FROM user_message
    WHERE type = 'feedback' AND model_version IS DISTINCT FROM %(model)s
      AND id %% %(shares)s = %(share)s
"""
_KEEP: Final = """
    UPDATE user_message message
    SET sentiment = scored.sentiment, sentiment_label = scored.sentiment_label,
        model_version = scored.model_version
    FROM staging."analytics.{batch}.user_message" scored
    WHERE message.id = scored.id
"""
#: By the hive's own clock; all days that a message was scored of are there again.
_DAYS: Final = """
    INSERT INTO feedback_day AS held
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
    WHERE (held.messages, held.sentiment, held.model)
        IS DISTINCT FROM (excluded.messages, excluded.sentiment, excluded.model)
"""


def unscored(spark: SparkSession, url: str, model: Sentiment) -> DataFrame:
    """Feedback this model has not seen: id, content."""
    return shared(spark, url, _UNSCORED, _MESSAGES, {"model": model.name})


def scored(messages: DataFrame, model: Sentiment) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    return messages.mapInArrow(Scoring(model), from_arrow_schema(SCORED))


def score_feedback(
    spark: SparkSession, database: Database, model: Sentiment, day: date, now: datetime
) -> int:
    """Score what is new, in one transaction with the days it changes. How many there were."""
    rows = scored(unscored(spark, database.url, model), model).toArrow()
    with database.transaction() as connection:
        staging = stage(connection, "analytics", day.toordinal(), "user_message", rows.schema.names)
        count = fill(connection, staging, rows.to_batches(), part=0)
        connection.execute(_KEEP.format(batch=day.toordinal()))
        discard(connection, staging)
        connection.execute(_DAYS, {"model": model.name, "now": now})
    return count
