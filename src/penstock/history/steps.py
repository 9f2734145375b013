"""The same on Spark: everything that was kept as a table, and questions to all of it.

The table is Parquet in the lake, brought up to the stream's end by a query with a checkpoint, so
each publication is in it once. A question is decided by the same function as for the present;
Spark leaves out what has another class or another time before that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pamqp import commands

from penstock.content import parse_publication, print_message, satisfies
from penstock.history import STREAM
from penstock.history.kept import publication_of
from penstock.history.questions import QUERY, Question

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
#: Where the properties of a content header begin: behind class, weight and the body's size.
_PROPERTIES: Final = 12
_HEADERS: Final = 4096


def table_of(data: Path) -> Path:
    return data / "lake" / "silver" / "publications"


def bring_up(spark: SparkSession, url: str, data: Path, stream: str = STREAM) -> None:
    """Take what the stream has that is not in the table yet; ends when it has it."""
    source = spark.readStream.format("penstock").schema(_MESSAGES)
    messages = source.options(url=url, streams=stream, startingOffsets="earliest").load()
    query = (
        publications(messages)
        .writeStream.format("parquet")
        .partitionBy("day")
        .option("path", str(table_of(data)))
        .option("checkpointLocation", str(data / "checkpoints" / "publications"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def publications(messages: DataFrame) -> DataFrame:
    """The publications among the messages of a stream."""
    return messages.mapInArrow(_publications, COLUMNS)


def answer(found: DataFrame, question: Question) -> DataFrame:
    """Those that satisfy a question."""
    from pyspark.sql.functions import col, lit

    rows = found.filter(col("class") == lit(question.wanted.class_name))
    if question.after is not None:
        rows = rows.filter(col("at") > lit(question.after))
    if question.before is not None:
        rows = rows.filter(col("at") < lit(question.before))
    return rows.mapInArrow(_satisfying(question), COLUMNS)


def _satisfying(
    question: Question,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    wanted = question.wanted

    def select(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            said = batch.column("said").to_pylist()
            kept = [satisfies(parse_publication(text), wanted) for text in said]
            yield batch.filter(pa.array(kept, pa.bool_()))

    return select


def _publications(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for messages in batches:
        yield _read(messages)


def _read(messages: pa.RecordBatch) -> pa.RecordBatch:
    rows = []
    for row in messages.to_pylist():
        properties = _properties(row["properties"][_PROPERTIES:])
        body = row["body"]
        found = publication_of(properties.content_type, properties.headers or {}, body)
        if found is None or QUERY in found[0].attributes:
            continue
        publication, payload = found
        at = _time(properties.timestamp or row["timestamp"])
        rows.append(
            {
                "offset": row["offset"],
                "id": properties.message_id or "",
                "at": at,
                "class": publication.class_name,
                "said": print_message(publication),
                "payload": payload,
                "day": at.date(),
            }
        )
    return pa.RecordBatch.from_pylist(rows, _SCHEMA)


@lru_cache(_HEADERS)
def _properties(encoded: bytes) -> Any:
    properties = commands.Basic.Properties()
    flags = int.from_bytes(encoded[:2], "big")
    properties.unmarshal(flags, encoded[2:])
    return properties


def _time(value: datetime | None) -> datetime:
    if value is None:
        return datetime.fromtimestamp(0, UTC)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value
