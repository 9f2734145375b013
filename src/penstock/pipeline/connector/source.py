"""The format `penstock`, as Spark knows it: options and a schema in, readers and writers out."""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from penstock.pipeline.connector.batch_reader import BatchReader
from penstock.pipeline.connector.options import read_options, write_options
from penstock.pipeline.connector.schema import SCHEMA, columns_of
from penstock.pipeline.connector.stream_reader import StreamReader
from penstock.pipeline.connector.writer import BatchWriter, StreamWriter, publishing_of


class PenstockSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(read_options(self.options, streaming=False), columns_of(schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(read_options(self.options, streaming=True), columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(publishing_of(write_options(self.options), schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return StreamWriter(publishing_of(write_options(self.options), schema, overwrite))


def register(spark: Any) -> None:
    """Make the format known to a session, a classic one or one of Spark Connect."""
    _use_this_python(spark)
    spark.dataSource.register(PenstockSource)


def _use_this_python(spark: Any) -> None:
    """Workers on this machine are to have what is installed here: left alone, Spark takes the
    `python3` of the path, which need not be that of a virtual environment."""
    context = getattr(spark, "_sc", None)  # a session of Spark Connect has none
    if (
        context is not None
        and context.master.startswith("local")
        and "PYSPARK_PYTHON" not in os.environ
        and not context.getConf().contains("spark.pyspark.python")
    ):
        context.pythonExec = sys.executable
