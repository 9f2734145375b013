"""The format `penstock`, as Spark knows it: options and a schema in, readers and writers out."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

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
        return StreamReader(read_options(self.options, streaming=True), select_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> ExchangeBatchWriter:
        return ExchangeBatchWriter(row_publisher(write_options(self.options), schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> ExchangeStreamWriter:
        return ExchangeStreamWriter(row_publisher(write_options(self.options), schema, overwrite))


def register(spark: Any) -> None:
    """Make the format known to a session, a classic one or one of Spark Connect."""
    _use_this_python(spark)
    spark.dataSource.register(PenstockDataSource)


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


# The schema of a DataFrame of messages, and which part of it a query wants.

#: `columns.ARROW_TYPES` has the same as Arrow types.
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
#: `columns.ON_REQUEST` likewise.
OPTIONAL_FIELDS: Final = (StructField("properties", BinaryType()),)
#: All of it in one column: many messages a row.
PACKED_SCHEMA: Final = StructType([StructField(PACKED_COLUMN, BinaryType())])


def select_columns(schema: StructType) -> MessageColumns:
    """The columns a query has asked for with `.schema(...)`: all, or some of them, in any order."""
    if schema == PACKED_SCHEMA:
        return MessageColumns(tuple(SPARK_SCHEMA.fieldNames()), packed=True)
    types = {field.name: field.dataType for field in (*SPARK_SCHEMA, *OPTIONAL_FIELDS)}
    for field in schema:
        if field.name not in types:
            raise ConfigurationError(
                f"there is no column {field.name!r}: messages have {', '.join(types)}"
            )
        if field.dataType != types[field.name]:
            raise ConfigurationError(
                f"column {field.name!r} is {types[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}"
            )
    return MessageColumns(tuple(schema.fieldNames()))
