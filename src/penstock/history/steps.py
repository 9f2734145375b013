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
from penstock.content.times import LATEST
from penstock.core.errors import WireSyntaxError
from penstock.core.properties import decode_header
from penstock.history import STREAM
from penstock.history.kept import publication_of, said_by
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
    return rows.mapInArrow(satisfying(question), COLUMNS)


def satisfying(
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
        yield read(messages)


def read(messages: pa.RecordBatch) -> pa.RecordBatch:
    rows = []
    for row in messages.to_pylist():
        try:
            header = decode_header(row["properties"])
        except WireSyntaxError:  # nobody can say what it says
            continue
        arrived = _arrived(header.timestamp or 0, row["timestamp"])
        found = publication_of(header.content_type, header.headers or {}, row["body"], arrived)
        if found is None or QUERY in found[0].attributes:
            continue
        publication, payload = found
        at = publication.time or arrived
        rows.append(
            {
                "offset": row["offset"],
                "id": _text(header.message_id or ""),
                "at": at,
                "class": publication.class_name,
                "said": said_by(publication),
                "payload": payload,
                "day": at.date(),
            }
        )
    return pa.RecordBatch.from_pylist(rows, _SCHEMA)


def _text(short: str) -> str:
    """AMQP says of a short string only how long it is; a table has texts."""
    return short.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _arrived(said: int, taken: datetime | None) -> datetime:
    """When the publisher says, if there is such a time; else when the stream took it."""
    if 0 < said <= LATEST:
        return datetime.fromtimestamp(said, UTC)
    if taken is None:
        return datetime.fromtimestamp(0, UTC)
    return taken.replace(tzinfo=UTC) if taken.tzinfo is None else taken
