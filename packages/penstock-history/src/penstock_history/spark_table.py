"""Stored publications as a table in the lake, queried with Spark.

The table is Parquet, updated from the stream by a query with a checkpoint, so each publication is
in it once. Spark filters by class and time; `satisfies`, the function that matches live
publications, decides the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.content import parse_publication, satisfies
from penstock.content.parser import LATEST_TIMESTAMP
from penstock.core.basic_properties import decode_header
from penstock.core.errors import WireSyntaxError
from penstock_history import STREAM
from penstock_history.publication import decode_publication, publication_text
from penstock_history.query import QUERY_ID_ATTRIBUTE, HistoryQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: `text` is the publication in the language, `day` the day it arrived, in UTC.
COLUMNS: Final = (
    "offset BIGINT, id STRING, at TIMESTAMP, class STRING, text STRING, payload BINARY, day DATE"
)
_SCHEMA: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("id", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("class", pa.string()),
        ("text", pa.string()),
        ("payload", pa.binary()),
        ("day", pa.date32()),
    ]
)
#: The content header has the types of values, which the connector's `headers` do not have.
_MESSAGES: Final = "offset BIGINT, timestamp TIMESTAMP, properties BINARY, body BINARY"


def table_path(data: Path) -> Path:
    return data / "lake" / "silver" / "history"


def update_table(spark: SparkSession, url: str, data: Path, stream: str = STREAM) -> None:
    """Adds the new messages of the stream to the table, up to its current end."""
    source = spark.readStream.format("penstock").schema(_MESSAGES)
    messages = source.options(url=url, streams=stream, startingOffsets="earliest").load()
    query = (
        publications(messages)
        .writeStream.format("parquet")
        .partitionBy("day")
        .option("path", str(table_path(data)))
        .option("checkpointLocation", str(data / "checkpoints" / "history"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def publications(messages: DataFrame) -> DataFrame:
    return messages.mapInArrow(_publications, COLUMNS)


def filter_publications(table: DataFrame, query: HistoryQuery) -> DataFrame:
    from pyspark.sql.functions import col, lit

    rows = table.filter(col("class") == lit(query.wanted.class_name))
    if query.after is not None:
        rows = rows.filter(col("at") > lit(query.after))
    if query.before is not None:
        rows = rows.filter(col("at") < lit(query.before))
    return rows.mapInArrow(query_filter(query), COLUMNS)


def query_filter(
    query: HistoryQuery,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    wanted = query.wanted

    def select(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            texts = batch.column("text").to_pylist()
            selected = [satisfies(parse_publication(text), wanted) for text in texts]
            yield batch.filter(pa.array(selected, pa.bool_()))

    return select


def _publications(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for messages in batches:
        yield decode_messages(messages)


def decode_messages(messages: pa.RecordBatch) -> pa.RecordBatch:
    rows = []
    for row in messages.to_pylist():
        try:
            header = decode_header(row["properties"])
        except WireSyntaxError:
            continue
        arrived = _publication_time(header.timestamp or 0, row["timestamp"])
        found = decode_publication(header.content_type, header.headers or {}, row["body"], arrived)
        if found is None or QUERY_ID_ATTRIBUTE in found[0].attributes:
            continue
        publication, payload = found
        at = publication.time or arrived
        rows.append(
            {
                "offset": row["offset"],
                "id": _decode_short_string(header.message_id or ""),
                "at": at,
                "class": publication.class_name,
                "text": publication_text(publication),
                "payload": payload,
                "day": at.date(),
            }
        )
    return pa.RecordBatch.from_pylist(rows, _SCHEMA)


def _decode_short_string(short: str) -> str:
    """An AMQP short string has any bytes; a column has text."""
    return short.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _publication_time(timestamp: int, appended: datetime | None) -> datetime:
    """The publisher's time if it is valid, else the time of the stream."""
    if 0 < timestamp <= LATEST_TIMESTAMP:
        return datetime.fromtimestamp(timestamp, UTC)
    if appended is None:
        return datetime.fromtimestamp(0, UTC)
    return appended.replace(tzinfo=UTC) if appended.tzinfo is None else appended
