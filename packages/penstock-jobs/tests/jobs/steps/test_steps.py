"""On Spark the same comes out as in one process, however the work is spread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from penstock_jobs.science.decay import DecayCoefficients
from penstock_jobs.science.matrix import SampleMatrix
from penstock_jobs.science.model import FRESH, SourceModel, new_model, searches
from penstock_jobs.science.prediction import SourcePredictor
from penstock_jobs.science.simulation import BLOCK, draw_samples
from penstock_jobs.science.spark import build_on_spark
from penstock_jobs.science.spark_simulation import predict, score_simulated, simulate
from tests.jobs.science.conftest import FEW, matrix, model, samples, slopes

__all__ = ["matrix", "model", "samples", "slopes"]


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


def test_samples_are_simulated_alike_however_they_are_spread(
    spark: SparkSession, matrix: SampleMatrix, slopes: DecayCoefficients
) -> None:
    count = BLOCK + 500
    frame = simulate(spark, matrix, slopes, count, seed=4)
    assert frame.count() == count
    found: Any = frame.toPandas()
    drawn = [
        draw_samples(matrix.values, slopes, size, 4, at) for at, size in enumerate((BLOCK, 500))
    ]
    assert sorted(found.hours) == sorted(np.concatenate([each.hours for each in drawn]))
    assert set(found.section) == set(range(7))
    assert found["GA17"].notna().sum() == sum(
        int(np.isfinite(d.values[:, 10]).sum()) for d in drawn
    )


def test_simulated_samples_are_judged_as_they_are_here(
    spark: SparkSession, matrix: SampleMatrix, model: SourceModel
) -> None:
    found = score_simulated(spark, model, matrix, 3000, seed=9)
    drawn = draw_samples(matrix.values, model.coefficients, 3000, 9)
    here = SourcePredictor(model).predict(drawn.values, drawn.seasons.tolist())["ERROR2"]
    counted = np.isfinite(drawn.values).sum(axis=1)
    truth = matrix.origins[drawn.rows]
    assert sum(n for (scheme, *_), n in found.items() if scheme == "ERROR2") == 3000
    for (scheme, origin, said, indicators), number in found.items():
        if scheme == "ERROR2":
            among = (truth == origin) & (here.classes == said) & (counted == indicators)
            assert number == among.sum()


def test_samples_are_predicted_as_they_are_here(
    spark: SparkSession, matrix: SampleMatrix, slopes: DecayCoefficients, model: SourceModel
) -> None:
    frame = simulate(spark, matrix, slopes, 200, seed=2)
    rows = predict(frame, model).where("scheme = 'ERROR'").collect()
    drawn = draw_samples(matrix.values, slopes, 200, 2)
    here = SourcePredictor(model).predict(drawn.values, drawn.seasons.tolist())["ERROR"]
    assert [row["class"] for row in rows] == here.classes.tolist()
    assert [row["hours"] for row in rows] == pytest.approx(here.hours.tolist())
    assert [tuple(row["deciding"]) for row in rows] == list(here.deciding)
    assert FRESH[0] in model.bags
