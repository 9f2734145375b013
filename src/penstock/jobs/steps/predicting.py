"""Predicting many samples on Spark: the model goes to the samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from penstock.jobs.science.indicators import INDICATORS
from penstock.jobs.science.model import Model
from penstock.jobs.science.prediction import Predictor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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


def predict(samples: DataFrame, model: Model) -> DataFrame:
    """Of samples as `simulate` has them: id, season and indicators; a row for each scheme."""
    names = ["sample", "season", *(name.replace(".", "_") for name in INDICATORS)]

    def predicted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        predictor = Predictor(model)
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
