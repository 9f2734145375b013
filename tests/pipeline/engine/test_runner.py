"""The engine: batches applied in order and once, restarts, stops."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock.pipeline.place import Place
from penstock.pipeline.runner import Engine
from tests.pipeline.engine.conftest import Town, in_lake
from tests.pipeline.engine.tally import SILVER, Tally


def test_what_is_in_the_streams_is_in_all_three_layers(
    spark: SparkSession, engine: Engine, tally: Tally, place: Place, town: Town
) -> None:
    town.publish(250)

    engine.once()

    assert tally.counts() == town.sent
    assert in_lake(spark, place, SILVER) == town.sent
    assert in_lake(spark, place, "bronze.messages") == town.sent
    assert len(tally.marks()) >= 3
