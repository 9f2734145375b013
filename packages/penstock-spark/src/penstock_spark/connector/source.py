"""The data source `penstock`: its schema, readers and writers."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.core.errors import ConfigurationError
from penstock_spark.connector.batch_reader import BatchReader
from penstock_spark.connector.columns import PACKED_COLUMN, MessageColumns
from penstock_spark.connector.options import read_options, write_options
from penstock_spark.connector.stream_reader import StreamReader
from penstock_spark.connector.writer import (
    ExchangeBatchWriter,
    ExchangeStreamWriter,
    row_publisher,
)


class PenstockDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(read_options(self.options, streaming=False), select_columns(schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        defer_pandas()  # in a process of Spark for this query alone
        return StreamReader(read_options(self.options, streaming=True), select_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> ExchangeBatchWriter:
        return ExchangeBatchWriter(row_publisher(write_options(self.options), schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> ExchangeStreamWriter:
        return ExchangeStreamWriter(row_publisher(write_options(self.options), schema, overwrite))


def defer_pandas() -> None:
    """Let Arrow load pandas (45 MB) when something is converted to it, not at its first array."""
    sys.meta_path.insert(0, _WithoutPandas)
    try:
        pa.array([0])  # looks for pandas once
    finally:
        sys.meta_path.remove(_WithoutPandas)


class _WithoutPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def register(spark: Any) -> None:
    """Register the format with a session, classic or Spark Connect."""
    _use_this_python(spark)
    spark.dataSource.register(PenstockDataSource)


def _use_this_python(spark: Any) -> None:
    """Let local workers use this interpreter; by default Spark takes `python3` of the path."""
    context = getattr(spark, "_sc", None)  # None in Spark Connect
    if (
        context is not None
        and context.master.startswith("local")
        and "PYSPARK_PYTHON" not in os.environ
        and not context.getConf().contains("spark.pyspark.python")
    ):
        context.pythonExec = sys.executable


#: As `columns.ARROW_TYPES`.
SPARK_SCHEMA: Final = StructType(
    [
        StructField("stream", StringType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("exchange", StringType()),
        StructField("routing_key", StringType()),
        StructField("content_type", StringType()),
        StructField("message_id", StringType()),
        StructField("headers", MapType(StringType(), StringType())),
        StructField("body", BinaryType()),
    ]
)
#: As `columns.OPTIONAL_TYPES`.
OPTIONAL_FIELDS: Final = (StructField("properties", BinaryType()),)
#: Many messages per row.
PACKED_SCHEMA: Final = StructType([StructField(PACKED_COLUMN, BinaryType())])


def select_columns(schema: StructType) -> MessageColumns:
    """The columns of a query, which `.schema(...)` may restrict and reorder."""
    if schema == PACKED_SCHEMA:
        return MessageColumns(tuple(SPARK_SCHEMA.fieldNames()), packed=True)
    types = {field.name: field.dataType for field in (*SPARK_SCHEMA, *OPTIONAL_FIELDS)}
    for field in schema:
        if field.name not in types:
            raise ConfigurationError(
                f"unknown column {field.name!r}: messages have {', '.join(types)}"
            )
        if field.dataType != types[field.name]:
            raise ConfigurationError(
                f"column {field.name!r} is {types[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}"
            )
    return MessageColumns(tuple(schema.fieldNames()))
