"""The same on Spark: everything that was kept as a table, and questions to all of it.

The table is Parquet in the lake, brought up to the stream's end by a query with a checkpoint, so
each publication is in it once. A question is decided by the same function as for the present;
Spark leaves out what has another class or another time before that.
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

#: `said` is the publication in the language, `day` the day it came, in UTC.
COLUMNS: Final = (
    "offset BIGINT, id STRING, at TIMESTAMP, class STRING, said STRING, payload BINARY, day DATE"
)
_SCHEMA: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("id", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("class", pa.string()),
        ("said", pa.string()),
        ("payload", pa.binary()),
        ("day", pa.date32()),
    ]
)
#: The content header has the types of values, which the connector's `headers` have not.
_MESSAGES: Final = "offset BIGINT, timestamp TIMESTAMP, properties BINARY, body BINARY"


def table_path(data: Path) -> Path:
    return data / "lake" / "silver" / "publications"


def update_table(spark: SparkSession, url: str, data: Path, stream: str = STREAM) -> None:
    """Take what the stream has that is not in the table yet; ends when it has it."""
    source = spark.readStream.format("penstock").schema(_MESSAGES)
    messages = source.options(url=url, streams=stream, startingOffsets="earliest").load()
    query = (
        publications(messages)
        .writeStream.format("parquet")
        .partitionBy("day")
        .option("path", str(table_path(data)))
        .option("checkpointLocation", str(data / "checkpoints" / "publications"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def publications(messages: DataFrame) -> DataFrame:
    """The publications among the messages of a stream."""
    return messages.mapInArrow(_publications, COLUMNS)


def filter_publications(found: DataFrame, question: HistoryQuery) -> DataFrame:
    """Those that satisfy a question."""
    from pyspark.sql.functions import col, lit

    rows = found.filter(col("class") == lit(question.wanted.class_name))
    if question.after is not None:
        rows = rows.filter(col("at") > lit(question.after))
    if question.before is not None:
        rows = rows.filter(col("at") < lit(question.before))
    return rows.mapInArrow(query_filter(question), COLUMNS)


def query_filter(
    question: HistoryQuery,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    wanted = question.wanted

    def select(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            said = batch.column("said").to_pylist()
            archived = [satisfies(parse_publication(text), wanted) for text in said]
            yield batch.filter(pa.array(archived, pa.bool_()))

    return select


def _publications(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for messages in batches:
        yield decode_messages(messages)


def decode_messages(messages: pa.RecordBatch) -> pa.RecordBatch:
    rows = []
    for row in messages.to_pylist():
        try:
            header = decode_header(row["properties"])
        except WireSyntaxError:  # nobody can say what it says
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
                "said": publication_text(publication),
                "payload": payload,
                "day": at.date(),
            }
        )
    return pa.RecordBatch.from_pylist(rows, _SCHEMA)


def _decode_short_string(short: str) -> str:
    """AMQP says of a short string only how long it is; a table has texts."""
    return short.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _publication_time(said: int, taken: datetime | None) -> datetime:
    """When the publisher says, if there is such a time; else when the stream took it."""
    if 0 < said <= LATEST_TIMESTAMP:
        return datetime.fromtimestamp(said, UTC)
    if taken is None:
        return datetime.fromtimestamp(0, UTC)
    return taken.replace(tzinfo=UTC) if taken.tzinfo is None else taken
