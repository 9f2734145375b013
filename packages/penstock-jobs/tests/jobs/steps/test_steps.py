"""On Spark the same comes out as in one process, however the work is spread."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock_jobs.science.decay import DecayCoefficients
from penstock_jobs.science.matrix import SampleMatrix
from penstock_jobs.science.model import SourceModel, new_model, searches
from penstock_jobs.science.spark import build_on_spark
from tests.jobs.science.conftest import FEW, matrix, model, slopes

__all__ = ["matrix", "model", "slopes"]


def test_a_model_built_on_spark_is_the_one_built_here(
    spark: SparkSession, matrix: SampleMatrix, slopes: DecayCoefficients, model: SourceModel
) -> None:
    told: list[float] = []
    built = build_on_spark(
        spark, new_model(matrix, slopes), searches(configurations=FEW), told.append
    )
    assert built.bags == model.bags
    assert told[-1] == 1.0
    assert told == sorted(told)
