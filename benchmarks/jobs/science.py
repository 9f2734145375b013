"""Source tracking on Spark: fits a second on one and two cores, samples judged, a small request.

CPU seconds are those of this process, Java and its Python workers; on a machine that others use,
they say more than the clock does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.jobs import spark_scoring
from benchmarks.usage import usage_of
from penstock_jobs.science import spark as building
from penstock_jobs.science import synthetic
from penstock_jobs.science.classifiers import CONFIGURATIONS
from penstock_jobs.science.decay import decay_coefficients
from penstock_jobs.science.indicators import INDICATORS
from penstock_jobs.science.matrix import prepare
from penstock_jobs.science.model import ALL, FOLDS, SourceModel, build, new_model, searches
from penstock_spark import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Of one search: five repetitions of up to five features out of 22, one fewer each time.
EVALUATIONS: Final = sum(sum(range(22 - gone - 4, 23 - gone)) for gone in range(5))
CLASSIFIERS: Final = tuple(each.name for each in CONFIGURATIONS)
_QUICK_ONES: Final = ("lda", "bayes", "logistic")


@dataclass(frozen=True, slots=True)
class Build:
    cores: int
    cells: int
    classifiers: int
    searches: int  #: that were done…
    of: int  #: … of those that the whole has
    fits: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.fits / self.seconds


@dataclass(frozen=True, slots=True)
class Judged:
    samples: int
    seconds: float
    cpu_seconds: float
    driver_rss_bytes: int


@dataclass(frozen=True, slots=True)
class Small:
    """A prediction of 15 samples in a session that is warm."""

    samples: int
    runs: int
    seconds: float  #: the median


def builds(
    cells: int, classifiers: Sequence[str], every: int, cores: Sequence[int]
) -> Iterator[Build]:
    """For the first `cells` of ages and seasons; one search of `every` so many, as they come, so
    that all cells and, if it has no factor in common with their number, all classifiers take
    part."""
    chosen = [each for each in CONFIGURATIONS if each.name in classifiers]
    whole = searches(ALL[:cells], chosen)
    wanted = whole[::every]
    model = _unbuilt()
    for number in cores:
        with _session(number) as spark:
            building.build_on_spark(
                spark, model, wanted[:number]
            )  # processes start, libraries load
            seconds, cpu = _timed(lambda: building.build_on_spark(spark, model, wanted))
            fits = len(wanted) * EVALUATIONS * FOLDS
            yield Build(number, cells, len(chosen), len(wanted), len(whole), fits, seconds, cpu)


def judged(samples: Sequence[int], cores: int) -> Iterator[Judged]:
    model = _quick_model()
    with _session(cores) as spark:
        spark_scoring.score_simulated(spark, model, model.matrix, 20_000)
        for count in samples:
            seconds, cpu = _timed(
                lambda: spark_scoring.score_simulated(spark, model, model.matrix, count)  # noqa: B023
            )
            yield Judged(count, seconds, cpu, usage_of([os.getpid()]).rss_bytes)


def small(runs: int, cores: int) -> Small:
    model = _quick_model()
    matrix = prepare(synthetic.test_columns(1))
    names = ["sample", "season", *(name.replace(".", "_") for name in INDICATORS)]
    rows: list[tuple[Any, ...]] = [
        (sample, int(season), *map(float, values))
        for sample, season, values in zip(
            matrix.samples, matrix.seasons, matrix.values, strict=True
        )
    ]
    with _session(cores) as spark:
        spans = []
        for _ in range(runs + 1):
            begun = time.perf_counter()
            frame = spark.createDataFrame(rows, names)
            found = spark_scoring.predict(frame, model).collect()
            spans.append(time.perf_counter() - begun)
            assert len(found) == 3 * len(rows)
        return Small(len(rows), runs, median(spans[1:]))


def _unbuilt() -> SourceModel:
    matrix = prepare(synthetic.reference_columns(1))
    return new_model(matrix, decay_coefficients(synthetic.agings(1)))


def _quick_model() -> SourceModel:
    few = [each for each in CONFIGURATIONS if each.name in _QUICK_ONES]
    return build(_unbuilt(), searches(configurations=few))


@contextmanager
def _session(cores: int) -> Iterator[SparkSession]:
    spark = open_session("benchmark", f"local[{cores}]")
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    cpu = usage_of([os.getpid()]).cpu_seconds
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun, usage_of([os.getpid()]).cpu_seconds - cpu
