"""The schema of a DataFrame of messages, and which part of it a query wants."""

from __future__ import annotations

from typing import Final

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
from penstock.pipeline.connector.columns import Columns
from penstock.pipeline.connector.packed import PACKED

#: `columns.ARROW_TYPES` has the same as Arrow types.
SCHEMA: Final = StructType(
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
ON_REQUEST: Final = (StructField("properties", BinaryType()),)
#: All of it in one column: many messages a row.
PACKED_SCHEMA: Final = StructType([StructField(PACKED, BinaryType())])


def columns_of(schema: StructType) -> Columns:
    """The columns a query has asked for with `.schema(...)`: all, or some of them, in any order."""
    if schema == PACKED_SCHEMA:
        return Columns(tuple(SCHEMA.fieldNames()), packed=True)
    types = {field.name: field.dataType for field in (*SCHEMA, *ON_REQUEST)}
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
    return Columns(tuple(schema.fieldNames()))
