"""`df.write` and `df.writeStream`: workers publish rows to an exchange, with confirms.

A task is complete when the broker has confirmed its last row. A task or batch that Spark repeats is
published again: at least once. For deduplication, a row without a `message_id` gets one from the
query, batch, partition and row. It is the same in a repetition if Spark passes the same rows to the
same partition in the same order, which it does unless the plan shuffles.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType

from penstock.client.amqp091.bulk_publisher import BulkPublisher
from penstock.core.basic_properties import (
    PERSISTENT,
    BasicProperties,
    encode_header,
    encode_shortstr,
)
from penstock.core.errors import ConfigurationError, WireSyntaxError
from penstock_spark.connector.options import WriteOptions

_TEXT: Final = (StringType(),)
_TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    "exchange": _TEXT,
    "routing_key": _TEXT,
    "content_type": _TEXT,
    "message_id": _TEXT,
    "headers": (MapType(StringType(), StringType()), MapType(StringType(), StringType(), False)),
    "body": (BinaryType(), StringType()),
}
#: The local properties of a task with its query and batch.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


@dataclass
class PublishCommit(WriterCommitMessage):
    count: int


@dataclass(frozen=True, slots=True)
class RowPublisher:
    """Picklable; the same for all tasks of a write."""

    options: WriteOptions
    columns: tuple[str, ...]
    run: str  #: identifies this write if there is no query

    def publish(self, batches: Iterator[pa.RecordBatch]) -> PublishCommit:
        options = self.options
        origin = self._origin()
        count = 0
        with BulkPublisher(
            options.address,
            "spark publisher",
            mandatory=options.mandatory,
            retry_seconds=options.retry_seconds,
        ) as publisher:
            routes: dict[tuple[str, str], bytes] = {}
            # Reused: creating it costs as much as encoding it.
            properties = BasicProperties(delivery_mode=PERSISTENT)
            for batch in batches:
                for row in self._rows(batch):
                    exchange, key, content_type, message_id, headers, body = row
                    route = routes.get((exchange, key))
                    if route is None:
                        route = routes[exchange, key] = _route(exchange, key)
                    properties.content_type, properties.headers = content_type, headers
                    properties.message_id = (
                        f"{origin}-{count}" if message_id is None else message_id
                    )
                    publisher.publish(route, _header(len(body), properties), body)
                    count += 1
            publisher.flush()
        return PublishCommit(count)

    def _rows(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        size = batch.num_rows

        def column(name: str, given: str | None = None, absent: Any = None) -> list[Any]:
            if given is not None:
                return [given] * size
            if name not in self.columns:
                return [absent] * size
            values = batch.column(self.columns.index(name)).to_pylist(maps_as_pydicts="lossy")
            return [absent if value is None else value for value in values]

        bodies = column("body", absent=b"")
        return zip(
            column("exchange", self.options.exchange, ""),
            column("routing_key", self.options.routing_key, ""),
            column("content_type"),
            column("message_id"),
            column("headers"),
            [body.encode() if isinstance(body, str) else body for body in bodies],
            strict=True,
        )

    def _origin(self) -> str:
        context = TaskContext.get()
        if context is None:
            return self.run
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        named = self.run if query is None or batch is None else f"{query}-{batch}"
        return f"{named}-{context.partitionId()}"


def _route(exchange: str, routing_key: str) -> bytes:
    try:
        return encode_shortstr(exchange, "exchange") + encode_shortstr(routing_key, "routing_key")
    except WireSyntaxError as error:
        raise ConfigurationError(str(error)) from None


def _header(size: int, properties: BasicProperties) -> bytes:
    try:
        return encode_header(properties, size)
    except WireSyntaxError as error:
        raise ConfigurationError(str(error)) from None


class ExchangeBatchWriter(DataSourceArrowWriter):
    def __init__(self, publishing: RowPublisher) -> None:
        self._publisher = publishing

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PublishCommit:
        return self._publisher.publish(iterator)


class ExchangeStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, publishing: RowPublisher) -> None:
        self._publisher = publishing

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PublishCommit:
        return self._publisher.publish(iterator)


def row_publisher(options: WriteOptions, schema: StructType, overwrite: bool) -> RowPublisher:
    """Check that the rows can be published; other columns are ignored."""
    if overwrite:
        raise ConfigurationError("messages cannot be overwritten; use mode('append')")
    types = {field.name: field.dataType for field in schema}
    if "body" not in types:
        raise ConfigurationError(f"column 'body' is missing; there are {', '.join(types)}")
    if options.routing_key is None and "routing_key" not in types:
        raise ConfigurationError("column 'routing_key' and option routingKey are both missing")
    for name, allowed in _TYPES.items():
        if name in types and types[name] not in allowed:
            raise ConfigurationError(
                f"column {name!r} is {types[name].simpleString()}; should be "
                f"{' or '.join(dict.fromkeys(each.simpleString() for each in allowed))}"
            )
    return RowPublisher(options, tuple(types), uuid.uuid4().hex)
