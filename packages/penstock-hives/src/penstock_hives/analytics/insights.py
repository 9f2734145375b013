"""Insights: sentences about a hive that its business can act on.

A rule gets the figures of one hive and returns an insight or none. An insight has a weight, by
which it is ranked, and the figures it is based on. Small numbers give no insight. The text is
stored in English; `insight_texts` says it in other languages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock_hives.analytics.insight_texts import insight_text
from penstock_hives.analytics.trends import in_window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


Figures = Mapping[str, Any]

#: The least relative change of daily visits.
MIN_CHANGE: Final = 0.15
#: The least visits a day of a change.
MIN_VISITS: Final = 10.0
MIN_LIFT: Final = 0.10
MIN_COVERAGE: Final = 0.8
MIN_MESSAGES: Final = 3
MIN_SENTIMENT: Final = 0.2


@dataclass(frozen=True, slots=True)
class HiveInsight:
    kind: str
    weight: float
    data: Mapping[str, Any]  #: the figures and names of its text


def change_insight(figures: Figures) -> HiveInsight | None:
    now, before = figures["visits_now"], figures["visits_before"]
    if now is None or before is None or max(now, before) < MIN_VISITS or not before:
        return None
    by = (now - before) / before
    if abs(by) < MIN_CHANGE:
        return None
    data = {"hive": figures["hive"], "now": now, "before": before, "change": by}
    return HiveInsight("busier" if by > 0 else "quieter", min(abs(by), 2.0), data)


def rank_insight(figures: Figures) -> HiveInsight | None:
    """Compared with other hives of its type: the busiest, or far below the median."""
    now, peers, middle = figures["visits_now"], figures["peers"], figures["peer_visits"]
    if (
        now is None
        or not peers
        or peers < MIN_MESSAGES
        or not middle
        or max(now, middle) < MIN_VISITS
    ):
        return None
    data = {"hive": figures["hive"], "now": now, "median": middle, "count": peers + 1}
    if figures["rank"] == 1:
        return HiveInsight("busiest", 0.5, data)
    return HiveInsight("behind", 0.4, data) if now < middle / 2 else None


def coverage_insight(figures: Figures) -> HiveInsight | None:
    coverage = figures["coverage"]
    if coverage is None or coverage >= MIN_COVERAGE:
        return None
    data = {"hive": figures["hive"], "coverage": coverage}
    return HiveInsight("unheard", 1.0 - coverage, data)


def sentiment_insight(figures: Figures) -> HiveInsight | None:
    messages, sentiment = figures["feedback"], figures["sentiment"]
    if (
        not messages
        or messages < MIN_MESSAGES
        or sentiment is None
        or abs(sentiment) < MIN_SENTIMENT
    ):
        return None
    data = {"hive": figures["hive"], "messages": messages, "sentiment": sentiment}
    return HiveInsight("praised" if sentiment > 0 else "criticised", abs(sentiment), data)


def deal_insight(figures: Figures) -> HiveInsight | None:
    lift = figures["lift"]
    if lift is None or abs(lift) < MIN_LIFT or (figures["deal_expected"] or 0) < MIN_VISITS:
        return None
    data = {
        "deal": figures["deal_id"],
        "title": figures["deal"],
        "lift": lift,
        "visits": figures["deal_visits"],
        "expected": figures["deal_expected"],
    }
    return HiveInsight("deal_worked" if lift > 0 else "deal_failed", min(abs(lift), 2.0), data)


INSIGHT_RULES: Final[tuple[Callable[[Figures], HiveInsight | None], ...]] = (
    change_insight,
    rank_insight,
    coverage_insight,
    sentiment_insight,
    deal_insight,
)

INSIGHT_SCHEMA: Final = pa.schema(
    [
        ("account_id", pa.int64()),
        ("hive_id", pa.int64()),
        ("kind", pa.string()),
        ("title", pa.string()),
        ("body", pa.string()),
        ("weight", pa.float32()),
        ("data", pa.string()),
    ]
)


def hive_insights(
    figures: Figures, rules: Iterable[Callable[[Figures], HiveInsight | None]] = INSIGHT_RULES
) -> list[HiveInsight]:
    return [found for rule in rules if (found := rule(figures)) is not None]


def insight_step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: figures of hives in, `INSIGHT_SCHEMA` out."""
    for batch in batches:
        rows = [
            _row(figures, found)
            for figures in batch.to_pylist()
            for found in hive_insights(figures)
        ]
        yield from pa.Table.from_pylist(rows, INSIGHT_SCHEMA).to_batches()


def _row(figures: Figures, found: HiveInsight) -> dict[str, Any]:
    title, body = insight_text(found.kind, found.data, "en")
    return {
        "account_id": figures["account_id"],
        "hive_id": figures["hive_id"],
        "kind": found.kind,
        "title": title,
        "body": body,
        "weight": found.weight,
        "data": json.dumps(found.data),
    }


def make_insights(
    days: DataFrame, compared: DataFrame, effects: DataFrame, deals: DataFrame, day: date
) -> DataFrame:
    """A row for each insight. `compared` is the comparison of four weeks."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    week, month = in_window(day, 7), in_window(day, 28)
    of_hive = days.groupBy("hive_id", "account_id", "hive").agg(
        f.avg(f.when(week, f.col("coverage"))).alias("coverage"),
        f.sum(f.when(month, f.col("feedback"))).alias("feedback"),
        # The mean of messages, not of days.
        (
            f.sum(f.when(month, f.col("sentiment") * f.col("feedback")))
            / f.nullif(f.sum(f.when(month, f.col("feedback"))), f.lit(0))
        ).alias("sentiment"),
    )
    # The recent deal with the greatest effect, positive or negative.
    fresh = deals.where(f.col("last") >= f.date_sub(f.lit(day), 7))
    best_deal = (
        effects.join(fresh.select("deal_id", "hive_id", "title"), "deal_id")
        .where("lift IS NOT NULL")
        .groupBy("hive_id")
        .agg(
            f.max_by(
                f.struct("deal_id", "title", "lift", "visits", "expected"), f.abs("lift")
            ).alias("best")
        )
        .select(
            "hive_id",
            f.col("best.deal_id").alias("deal_id"),
            f.col("best.title").alias("deal"),
            f.col("best.lift").alias("lift"),
            f.col("best.visits").alias("deal_visits"),
            f.col("best.expected").alias("deal_expected"),
        )
    )
    columns = ("visits_now", "visits_before", "peers", "peer_visits", "rank")
    return (
        of_hive.join(compared.select("hive_id", *columns), "hive_id", "left")
        .join(best_deal, "hive_id", "left")
        .mapInArrow(insight_step, from_arrow_schema(INSIGHT_SCHEMA))
        .withColumn("day", f.lit(day))
    )
