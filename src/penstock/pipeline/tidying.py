"""Compaction now and then, beside a query that runs for long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipeline.chores import Chore
from penstock.pipeline.claims import Claim
from penstock.pipeline.compaction import compact
from penstock.pipeline.place import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def tidying(place: Place, every: float) -> Chore:
    """Compact the flow's tables every so many seconds, unless somebody does, or replays."""

    def tidy(spark: SparkSession) -> None:
        with place.claims.hold(Claim.FILES, wait=False):
            compact(spark, place.lake)

    return Chore("compaction", tidy, every, every)
