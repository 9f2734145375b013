"""Source tracking, built in: models are built on Spark or here, predictions made in the pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.jobs.model import Aging, BuildModels, PredictModels, Request, Result
from penstock.jobs.pool.pool import Pool
from penstock.jobs.shells.shell import Limits
from penstock.jobs.work.calls import in_pool
from penstock.jobs.work.kind import Attempt, Outcome, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Told = Callable[[float], None]
#: Column → (position in the year, trials).
PlainAgings = dict[str, tuple[tuple[float | None, Any], ...]]


class TrackingKind:
    """Keeps `Kind`. Without a pool that has Spark, models are built one search after the other.
    `methods` are the kinds of classifiers that are tried; none is all."""

    types = ("build_models", "predict_models")
    ahead = False

    def __init__(self, pool: Pool, on_spark: Pool | None, methods: Sequence[str] = ()) -> None:
        self._pool = pool
        self._on_spark = on_spark
        self._methods = tuple(methods)

    async def open(self) -> None:
        """Pools are opened when they are needed."""

    async def close(self) -> None:
        await self._pool.close()
        if self._on_spark is not None:
            await self._on_spark.close()

    def begin(self, request: Request, limits: Limits, report: Report) -> Attempt:
        if isinstance(request, PredictModels):
            arguments: tuple[Any, ...] = (dict(request.dataset), request.models)
            function, pool, outcome = "predict", self._pool, _predicted
        else:
            assert isinstance(request, BuildModels)
            arguments = (dict(request.dataset), _plain(request), self._methods)
            outcome = _built
            if self._on_spark is None:
                function, pool = "build", self._pool
            else:
                function, pool = "build_on_spark", self._on_spark
        place = f"{__name__}:{function}"
        return in_pool(pool, place, arguments, {}, limits, report, outcome, plain=False)


def _plain(request: BuildModels) -> PlainAgings:
    return {
        name: tuple((each.position, each.trials) for each in agings)
        for name, agings in request.agings.items()
    }


def _built(value: Any, seconds: float) -> Outcome:
    models, figures = value
    return Outcome(models=models, value=figures, seconds=seconds)


def _predicted(value: Any, seconds: float) -> Outcome:
    return Outcome(tuple(Result(**each) for each in value), seconds=seconds)


# What follows runs in processes of the pool.


def build(
    dataset: dict[str, tuple[str, ...]],
    agings: PlainAgings,
    methods: tuple[str, ...],
    progress: Told,
) -> tuple[bytes, dict[str, int]]:
    from penstock.jobs.science.model import build as build_here

    return _build(
        dataset, agings, methods, lambda model, wanted: build_here(model, wanted, progress)
    )


def build_on_spark(
    spark: SparkSession,
    dataset: dict[str, tuple[str, ...]],
    agings: PlainAgings,
    methods: tuple[str, ...],
    progress: Told,
) -> tuple[bytes, dict[str, int]]:
    from penstock.jobs.steps.building import build as build_on

    return _build(
        dataset, agings, methods, lambda model, wanted: build_on(spark, model, wanted, progress)
    )


def _build(
    dataset: dict[str, tuple[str, ...]],
    agings: PlainAgings,
    methods: tuple[str, ...],
    built: Callable[[Any, Any], Any],
) -> tuple[bytes, dict[str, int]]:
    from penstock.jobs.science.ageing import coefficients
    from penstock.jobs.science.classifiers import CONFIGURATIONS
    from penstock.jobs.science.matrix import prepare
    from penstock.jobs.science.model import FRESH, searches, unbuilt
    from penstock.jobs.science.modelfile import save

    trials = {
        name: tuple(Aging(trials, position) for position, trials in each)
        for name, each in agings.items()
    }
    model = unbuilt(prepare(dataset), coefficients(trials))
    chosen = [each for each in CONFIGURATIONS if not methods or each.kind in methods]
    model = built(model, searches(FRESH, chosen))
    figures = {
        "signatures": sum(len(bag) for bag in model.bags.values()),
        "cells": len(model.bags),
        "samples": len(model.matrix),
    }
    return save(model), figures


def predict(dataset: dict[str, tuple[str, ...]], models: bytes) -> list[dict[str, Any]]:
    from penstock.jobs.science.matrix import prepare
    from penstock.jobs.science.modelfile import load
    from penstock.jobs.science.prediction import Predictor
    from penstock.jobs.science.report import result

    samples = prepare(dataset)
    found = Predictor(load(models)).predict(samples.values, samples.seasons)
    return [asdict(result(samples, each)) for each in found.values()]
