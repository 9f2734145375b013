"""The built-in source tracking: models are built on Spark or in the pool, predictions in the pool.

The functions at the end run in the processes of the pool.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from penstock_jobs.executors.executor import (
    Attempt,
    AttemptListener,
    FakeExecutor,
    JobOutcome,
    TaskExecutor,
)
from penstock_jobs.executors.functions import run_in_pool
from penstock_jobs.model import (
    Aging,
    BuildModels,
    JobRequest,
    PredictModels,
    VoteResult,
    as_fake,
)
from penstock_jobs.pool.pool import ProcessPool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ShareCallback = Callable[[float], None]
#: Share, end as seconds since 1970, counts by scheme.
PredictCallback = Callable[[float, float, dict[str, tuple[int, int]]], None]
#: Column → (position in the year, trials).
PlainAgings = dict[str, tuple[tuple[float | None, Any], ...]]


class SourceTrackingExecutor:
    """Implements `JobExecutor`. Without a pool with Spark, searches run one after the other.
    `methods` are kinds of classifiers; empty means all."""

    types = ("build_models", "predict_models")
    can_prefetch = False

    def __init__(
        self, pool: ProcessPool, spark_pool: ProcessPool | None, methods: Sequence[str] = ()
    ) -> None:
        self._pool = pool
        self._spark_pool = spark_pool
        self._methods = tuple(methods)
        self._fake = TaskExecutor(FakeExecutor())

    async def open(self) -> None:
        """The pools start with their first task."""

    async def close(self) -> None:
        await self._fake.close()
        await self._pool.close()
        if self._spark_pool is not None:
            await self._spark_pool.close()

    def start(self, request: JobRequest, listener: AttemptListener) -> Attempt:
        if (trial := as_fake(request)) is not None:
            return self._fake.start(trial, listener)
        if isinstance(request, PredictModels):
            arguments: tuple[Any, ...] = (dict(request.dataset), request.models)
            function, pool, outcome = "predict", self._pool, _predicted
        else:
            assert isinstance(request, BuildModels)
            arguments = (dict(request.dataset), _plain(request), self._methods)
            outcome = _built
            if self._spark_pool is None:
                function, pool = "build", self._pool
            else:
                function, pool = "build_on_spark", self._spark_pool
        return run_in_pool(
            pool,
            f"{__name__}:{function}",
            arguments,
            {},
            listener,
            outcome,
            as_json=False,
            partial_results=_counted,
        )


def _plain(request: BuildModels) -> PlainAgings:
    return {
        name: tuple((each.position, each.trials) for each in agings)
        for name, agings in request.agings.items()
    }


def _built(value: Any, seconds: float) -> JobOutcome:
    models, figures = value
    return JobOutcome(models=models, value=figures, seconds=seconds)


def _counted(counts: dict[str, tuple[int, int]] | None) -> tuple[VoteResult, ...]:
    """By scheme: the samples of all, and those with a prediction so far."""
    return tuple(VoteResult(name, *each) for name, each in (counts or {}).items())


def _predicted(value: Any, seconds: float) -> JobOutcome:
    return JobOutcome(tuple(VoteResult(**each) for each in value), seconds=seconds)


def build(
    dataset: dict[str, tuple[str, ...]],
    agings: PlainAgings,
    methods: tuple[str, ...],
    progress: ShareCallback,
    spark: SparkSession | None = None,
) -> tuple[bytes, dict[str, int]]:
    from penstock_jobs.science import model as models
    from penstock_jobs.science.classifiers import CONFIGURATIONS
    from penstock_jobs.science.decay import decay_coefficients
    from penstock_jobs.science.matrix import prepare
    from penstock_jobs.science.model_file import save_model
    from penstock_jobs.science.validation import calibrate

    trials = {
        name: tuple(Aging(trials, position) for position, trials in each)
        for name, each in agings.items()
    }
    model = models.new_model(prepare(dataset), decay_coefficients(trials))
    chosen = [each for each in CONFIGURATIONS if not methods or each.kind in methods]
    searches = models.searches(models.FRESH, chosen)
    if spark is None:
        model = models.build(model, searches, progress)
    else:
        from penstock_jobs.science import spark as on_spark

        model = on_spark.build_on_spark(spark, model, searches, progress)
    model = replace(model, calibration=calibrate(model))
    figures = {
        "signatures": sum(len(bag) for bag in model.bags.values()),
        "cells": len(model.bags),
        "samples": len(model.matrix),
    }
    return save_model(model), figures


def build_on_spark(
    spark: SparkSession,
    dataset: dict[str, tuple[str, ...]],
    agings: PlainAgings,
    methods: tuple[str, ...],
    progress: ShareCallback,
) -> tuple[bytes, dict[str, int]]:
    return build(dataset, agings, methods, progress, spark)


def predict(
    dataset: dict[str, tuple[str, ...]], models: bytes, progress: PredictCallback
) -> list[dict[str, Any]]:
    from penstock_jobs.science.matrix import prepare
    from penstock_jobs.science.model_file import load_model
    from penstock_jobs.science.prediction import SourcePredictor
    from penstock_jobs.science.report import prediction_result

    samples = prepare(dataset)
    predictor = SourcePredictor(load_model(models))
    start = time.time()

    def judged(done: int, predicted: dict[str, int]) -> None:
        share = done / len(samples)
        counts = {scheme: (len(samples), count) for scheme, count in predicted.items()}
        progress(share, start + (time.time() - start) / share, counts)

    predictions = predictor.predict_in_blocks(samples.values, samples.seasons, judged)
    return [asdict(prediction_result(samples, each)) for each in predictions.values()]
