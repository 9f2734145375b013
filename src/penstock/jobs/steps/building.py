"""Building models on Spark: each search of a configuration in a cell is a task of its own.

A search's result depends on the model and the search alone, so it is the same on one core and on a
thousand. The longest begin first: whoever is last should have little left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.jobs.science.model import Model, Search, carry_out, gathered
from penstock.jobs.science.signatures import Signature
from penstock.jobs.steps.watching import watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOUND: Final = "search int, features array<int>, score double"
_SCHEMA: Final = pa.schema(
    [("search", pa.int32()), ("features", pa.list_(pa.int32())), ("score", pa.float64())]
)
#: How long a fit takes, roughly and beside each other.
_EFFORT: Final = {"rvm": 20, "svm": 5, "knn": 2, "logistic": 2, "lda": 1, "bayes": 1}


def build(
    spark: SparkSession,
    model: Model,
    wanted: Sequence[Search],
    told: Callable[[float], None] = lambda _: None,
) -> Model:
    """The model with the signatures of all searches."""
    order = sorted(wanted, key=lambda each: -_EFFORT[each.configuration.kind])

    def carry_out_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                found = carry_out(model, order[number])
                rows = [(number, list(each.features), each.score) for each in found]
                columns = zip(*rows, strict=True)
                yield pa.record_batch(
                    [
                        pa.array(column, field.type)
                        for column, field in zip(columns, _SCHEMA, strict=True)
                    ],
                    schema=_SCHEMA,
                )

    pieces = spark.range(0, len(order), 1, len(order)).mapInArrow(carry_out_all, _FOUND)
    with watched(spark, len(order), told):
        rows = pieces.collect()
    results: dict[Search, list[Signature]] = {each: [] for each in order}
    for row in rows:
        search = order[row.search]
        results[search].append(Signature(search.configuration, tuple(row.features), row.score))
    return gathered(model, results)
