"""Recommended deals of each user: from preferences, actions, and what other users do.

A deal of a favourite hive counts most, then preferred types of hives and kinds of deals, then
trending deals. The reason of a recommendation is its strongest signal. Deals that were redeemed or
dismissed are not recommended again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_RECOMMENDATIONS: Final = 10
#: Trending deals that are candidates for all users.
MAX_TRENDING: Final = 20
#: Weights of user actions.
ACTION_WEIGHTS: Final = {
    "view": 1.0,
    "search": 1.0,
    "navigate": 2.0,
    "favourite": 3.0,
    "deal_open": 2.0,
    "deal_redeem": 4.0,
}
SIGNAL_WEIGHTS: Final = {
    "favourite": 4.0,
    "preferred": 2.0,
    "affine": 2.0,
    "visited": 1.5,
    "trending": 1.0,
}
REASONS: Final = {
    "favourite": "A favourite of yours offers it",
    "preferred": "You asked for deals like this",
    "affine": "You like places of this kind",
    "visited": "You have been there",
    "trending": "Many take it up now",
}

DEAL_SCHEMA: Final = pa.schema(
    [
        ("deal_id", pa.int64()),
        ("hive_id", pa.int64()),
        ("hive_type", pa.string()),
        ("kind", pa.string()),
        ("taken", pa.int64()),
    ]
)
DEALS_SQL: Final = """
    SELECT deal.id AS deal_id, deal.hive_id, hive_type.code AS hive_type, deal.kind,
           (SELECT count(*) FILTER (WHERE e.kind = 'opened')
                 + 3 * count(*) FILTER (WHERE e.kind = 'redeemed')
            FROM deal_event e WHERE e.deal_id = deal.id AND e.at > %(now)s - interval '7 days')
               AS taken
    FROM deal
    JOIN hive ON hive.id = deal.hive_id AND hive.public AND hive.status = 'active'
    JOIN hive_type ON hive_type.id = hive.hive_type_id
    WHERE deal.status = 'published' AND deal.expires_at > %(now)s
      AND deal.starts_at < %(now)s + interval '1 day'
      AND (deal.max_redemptions IS NULL OR deal.redemptions < deal.max_redemptions)
"""
USER_SCHEMA: Final = pa.schema(
    [
        ("user_id", pa.int64()),
        ("kinds", pa.list_(pa.string())),
        ("hive_types", pa.list_(pa.string())),
    ]
)
USERS_SQL: Final = """
    SELECT u.id AS user_id, coalesce(p.kinds, '{}') AS kinds,
           coalesce(p.hive_types, '{}') AS hive_types
    FROM app_user u LEFT JOIN deal_preference p ON p.user_id = u.id
    WHERE u.deleted_at IS NULL AND u.id %% %(shares)s = %(share)s
"""
USER_HIVE_SCHEMA: Final = pa.schema(
    [("user_id", pa.int64()), ("hive_id", pa.int64()), ("favourite", pa.bool_())]
)
USER_HIVES_SQL: Final = """
    SELECT user_id, hive_id, favourite FROM user_hive
    WHERE (favourite OR visit_count > 0) AND user_id %% %(shares)s = %(share)s
"""
ACTION_SCHEMA: Final = pa.schema(
    [("user_id", pa.int64()), ("hive_type", pa.string()), ("action", pa.string())]
)
ACTIONS_SQL: Final = """
    SELECT a.user_id, t.code AS hive_type, a.action
    FROM user_analytics a
    JOIN hive h ON h.id = a.hive_id
    JOIN hive_type t ON t.id = h.hive_type_id
    WHERE a.user_id IS NOT NULL AND a.at > %(now)s - interval '60 days'
      AND a.user_id %% %(shares)s = %(share)s
"""
CLOSED_DEAL_SCHEMA: Final = pa.schema([("user_id", pa.int64()), ("deal_id", pa.int64())])
CLOSED_DEALS_SQL: Final = """
    SELECT DISTINCT user_id, deal_id FROM deal_event
    WHERE user_id IS NOT NULL AND kind IN ('redeemed', 'dismissed')
      AND user_id %% %(shares)s = %(share)s
"""
#: Tables of users, in the order of the parameters of `recommendations`.
USER_TABLES: Final = (
    (USERS_SQL, USER_SCHEMA),
    (USER_HIVES_SQL, USER_HIVE_SCHEMA),
    (ACTIONS_SQL, ACTION_SCHEMA),
    (CLOSED_DEALS_SQL, CLOSED_DEAL_SCHEMA),
)


def recommendations(
    deals: DataFrame, users: DataFrame, user_hives: DataFrame, actions: DataFrame, closed: DataFrame
) -> DataFrame:
    """At most ten deals for each user: user_id, deal_id, score, reason."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    candidates = _candidates(deals, users, user_hives, actions)
    signals = (
        candidates.groupBy("user_id", "deal_id")
        .agg(*(f.coalesce(f.max(name), f.lit(0.0)).alias(name) for name in SIGNAL_WEIGHTS))
        .join(closed, ["user_id", "deal_id"], "left_anti")
    )
    parts = {name: f.lit(weight) * f.col(name) for name, weight in SIGNAL_WEIGHTS.items()}
    score = sum(parts.values(), f.lit(0.0))
    strongest = f.greatest(*parts.values())
    reason = f.lit(REASONS["trending"])
    for name in reversed(SIGNAL_WEIGHTS):  # the first of equal signals wins
        reason = f.when(parts[name] == strongest, f.lit(REASONS[name])).otherwise(reason)
    best = Window.partitionBy("user_id").orderBy(f.col("score").desc(), f.col("deal_id"))
    return (
        signals.withColumn("score", score)
        .where("score > 0")
        .withColumn("rank", f.row_number().over(best))
        .where(f.col("rank") <= MAX_RECOMMENDATIONS)
        .select("user_id", "deal_id", "score", reason.alias("reason"))
    )


def _candidates(
    deals: DataFrame, users: DataFrame, user_hives: DataFrame, actions: DataFrame
) -> DataFrame:
    """A row for each signal of a user and a deal."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    def signal_rows(rows: DataFrame, **signals: object) -> DataFrame:
        columns = [f.lit(signals.get(name)).cast("double").alias(name) for name in SIGNAL_WEIGHTS]
        return rows.select("user_id", "deal_id", *columns)

    at_hives = deals.join(user_hives, "hive_id")
    favourite = f.when(f.col("favourite"), f.lit(1.0)).otherwise(f.lit(0.0))
    known = signal_rows(at_hives, favourite=favourite, visited=f.lit(1.0))
    # Users without preferences have no such signal.
    asked = users.where((f.size("kinds") > 0) | (f.size("hive_types") > 0))
    preferred = signal_rows(
        asked.crossJoin(f.broadcast(deals)).where(
            ((f.size("kinds") == 0) | f.array_contains("kinds", f.col("kind")))
            & ((f.size("hive_types") == 0) | f.array_contains("hive_types", f.col("hive_type")))
        ),
        preferred=f.lit(1.0),
    )
    weight = f.lit(0.0)
    for action, value in ACTION_WEIGHTS.items():
        weight = f.when(f.col("action") == action, f.lit(value)).otherwise(weight)
    of_user = Window.partitionBy("user_id")
    tastes = (
        actions.withColumn("weight", weight)
        .groupBy("user_id", "hive_type")
        .agg(f.sum("weight").alias("weight"))
        .withColumn("share", f.col("weight") / f.nullif(f.sum("weight").over(of_user), f.lit(0.0)))
        .where("share >= 0.2")
    )
    affine = signal_rows(tastes.join(f.broadcast(deals), "hive_type"), affine=f.col("share"))
    most = f.max("taken").over(Window.partitionBy())
    popular = (
        deals.where("taken > 0")
        .withColumn("trend", f.col("taken") / most)
        .orderBy(f.col("trend").desc(), f.col("deal_id"))
        .limit(MAX_TRENDING)
    )
    trending = signal_rows(users.crossJoin(f.broadcast(popular)), trending=f.col("trend"))
    return known.unionByName(preferred).unionByName(affine).unionByName(trending)
