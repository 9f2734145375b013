"""Days of hives for tests of analytics."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock_hives.analytics.hive_days import HIVE_DAY_SCHEMA

DAY = date(2026, 5, 31)

_COUNTS = ("views", "searches", "favourites", "deal_opens", "deal_redemptions", "feedback")


def a_day(
    hive: int, ago: int, hive_type: str = "cafe", account: int = 1, **facts: Any
) -> dict[str, Any]:
    """A day of a hive so many days before the last one."""
    unknown = dict.fromkeys(HIVE_DAY_SCHEMA.names)
    nothing = dict.fromkeys(_COUNTS, 0)
    known = {
        "hive_id": hive,
        "account_id": account,
        "hive_type": hive_type,
        "hive": f"Hive {hive}",
        "day": DAY - timedelta(days=ago),
    }
    return {**unknown, **nothing, **known, **facts}


def frame(
    spark: SparkSession, rows: list[dict[str, Any]], schema: pa.Schema = HIVE_DAY_SCHEMA
) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema))


def rows(found: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """In order; a single column is still a tuple."""
    return sorted(tuple(row) for row in found.select(*columns).collect())
