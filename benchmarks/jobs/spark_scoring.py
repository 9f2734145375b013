"""Predictions on Spark: of millions of simulated samples, and of a small data frame.

A block of draws is a row of the first frame; each task draws the same samples for it. Only counts
are collected, so the driver's memory does not grow with the number of samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from penstock_jobs.science.decay import DecayCoefficients
from penstock_jobs.science.indicators import INDICATORS
from penstock_jobs.science.matrix import SampleMatrix
from penstock_jobs.science.model import SourceModel
from penstock_jobs.science.prediction import SourcePredictor
from penstock_jobs.science.simulation import BLOCK, SimulatedSamples, draw_samples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Batches = Iterator[pa.RecordBatch]

_COUNTS_TEXT: Final = "scheme string, origin int, class int, indicators int, samples long"
_COUNTS: Final = pa.schema(
    [
        ("scheme", pa.string()),
        ("origin", pa.int32()),
        ("class", pa.int32()),
        ("indicators", pa.int32()),
        ("samples", pa.int64()),
    ]
)


def score_simulated(
    spark: SparkSession,
    model: SourceModel,
    base: SampleMatrix,
    count: int,
    seed: int = 1,
) -> dict[tuple[str, int, int, int], int]:
    """Scheme, origin, predicted class, number of indicators → how many simulated samples."""
    origins = base.origins

    def judged(batches: Batches) -> Batches:
        predictor = SourcePredictor(model)

        def rows(drawn: SimulatedSamples) -> pa.RecordBatch:
            counted = np.isfinite(drawn.values).sum(axis=1)
            cells: list[tuple[str, int, int, int, int]] = []
            for scheme, found in predictor.predict(drawn.values, drawn.seasons.tolist()).items():
                keys = np.column_stack([origins[drawn.rows], found.classes, counted])
                kinds, numbers = np.unique(keys, axis=0, return_counts=True)
                cells += [
                    (scheme, *kind, number)
                    for kind, number in zip(kinds.tolist(), numbers.tolist(), strict=True)
                ]
            columns = zip(*cells, strict=True)
            return pa.record_batch(
                [pa.array(c, f.type) for c, f in zip(columns, _COUNTS, strict=True)],
                schema=_COUNTS,
            )

        yield from _blocks(base, model.coefficients, count, seed, rows)(batches)

    frame = _frame(spark, count)
    counts = frame.mapInArrow(judged, _COUNTS_TEXT)
    grouped = counts.groupBy("scheme", "origin", "class", "indicators").sum("samples")
    return {(row[0], row[1], row[2], row[3]): row[4] for row in grouped.collect()}


def _frame(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, -(-count // BLOCK), 1, _tasks(count))


def _tasks(count: int) -> int:
    """Enough for an even load."""
    blocks = -(-count // BLOCK)
    return max(min(blocks, 64), blocks // 10)


def _blocks(
    matrix: SampleMatrix,
    coefficients: DecayCoefficients,
    count: int,
    seed: int,
    rows: Callable[[SimulatedSamples], pa.RecordBatch],
) -> Callable[[Batches], Batches]:
    def made(batches: Batches) -> Batches:
        for batch in batches:
            for block in batch.column(0).to_pylist():
                size = min(BLOCK, count - block * BLOCK)
                yield rows(draw_samples(matrix.values, coefficients, size, seed, block))

    return made


_PREDICTED: Final = (
    "sample string, scheme string, class int, confidence double, hours double, dilution double, "
    "deciding array<string>"
)
_SCHEMA: Final = pa.schema(
    [
        ("sample", pa.string()),
        ("scheme", pa.string()),
        ("class", pa.int32()),
        ("confidence", pa.float64()),
        ("hours", pa.float64()),
        ("dilution", pa.float64()),
        ("deciding", pa.list_(pa.string())),
    ]
)


def predict(samples: DataFrame, model: SourceModel) -> DataFrame:
    """Of samples with id, season and indicators; a row for each scheme."""
    names = ["sample", "season", *(name.replace(".", "_") for name in INDICATORS)]

    def predicted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        predictor = SourcePredictor(model)
        for batch in batches:
            columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns[2:]]
            values = np.column_stack(columns).astype(np.float64)
            found = predictor.predict(values, batch.column(1).to_pylist())
            for scheme, each in found.items():
                yield pa.record_batch(
                    [
                        batch.column(0),
                        pa.array([scheme] * len(values)),
                        pa.array(each.classes.astype(np.int32)),
                        pa.array(each.confidence),
                        pa.array(each.hours),
                        pa.array(each.dilutions),
                        pa.array([list(names) for names in each.deciding], pa.list_(pa.string())),
                    ],
                    schema=_SCHEMA,
                )

    return samples.select(*names).mapInArrow(predicted, _PREDICTED)
