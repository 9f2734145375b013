"""The silver table of announcements and the daily summary, as functions of DataFrames.

A row of silver is one message as one exchange routed it: a post, a report, or an unreadable message
with the reason. So the path of a file is its rows ordered by `at`, and what an exchange did in a
day is a sum over its rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock_pump.errors import BadPost
from penstock_pump.posts.formats import read_post
from penstock_pump.posts.post import Post
from penstock_pump.posts.reports import PostReport, read_report

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_REPORT: Final = re.compile(r"(?:[^.]+\.)?v\d\d\.report(?:\.|$)")

ANNOUNCEMENTS: Final = "silver.announcements"
SUMMARY: Final = "gold.summary"

POST: Final = "post"
REPORT: Final = "report"
UNREADABLE: Final = "unreadable"

_TIME: Final = pa.timestamp("us", "UTC")

ANNOUNCEMENT_SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),  # post, report, or unreadable
        ("at", _TIME),  # when the broker received it
        ("moment", _TIME),  # when the file was first announced
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("stream", pa.string()),
        ("offset", pa.int64()),
        ("relpath", pa.string()),
        ("name", pa.string()),
        ("base_url", pa.string()),
        ("event", pa.string()),
        ("sum", pa.string()),
        ("size", pa.int64()),  # of the file
        ("length", pa.int64()),  # of the file, or of the announced block
        ("block", pa.int64()),
        ("blocks", pa.int64()),
        ("source", pa.string()),
        ("from_cluster", pa.string()),
        ("to_clusters", pa.string()),
        ("code", pa.int32()),
        ("message", pa.string()),
        ("host", pa.string()),
        ("user", pa.string()),
        ("seconds", pa.float64()),
        ("day", pa.date32()),
    ]
)
#: The columns of bronze that are read.
MESSAGE: Final = (
    *("stream", "offset", "timestamp", "exchange", "routing_key", "headers", "body", "day"),
)


def announcements(messages: DataFrame) -> DataFrame:
    """Rows of bronze to rows of silver."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return messages.select(*MESSAGE).mapInArrow(_decoded, from_arrow_schema(ANNOUNCEMENT_SCHEMA))


def _decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pylist(
            [row_of(each) for each in batch.to_pylist()], ANNOUNCEMENT_SCHEMA
        )


def row_of(message: Mapping[str, Any]) -> dict[str, Any]:
    origin = {
        "at": message["timestamp"],
        "exchange": message["exchange"],
        "routing_key": message["routing_key"],
        "stream": message["stream"],
        "offset": message["offset"],
        "day": message["day"],
    }
    body, headers = message["body"] or b"", dict(message["headers"] or {})
    try:
        if is_report(message["routing_key"] or ""):
            return {**origin, **_of_report(read_report(body, headers))}
        return {**origin, "kind": POST, **_of_post(read_post(body, headers))}
    except BadPost as error:
        return {**origin, "kind": UNREADABLE, "code": error.code, "message": str(error)}


def is_report(routing_key: str) -> bool:
    """By its topic: `v02.report…`, after the exchange where it was published over MQTT."""
    return _REPORT.match(routing_key) is not None


def _of_report(report: PostReport) -> dict[str, Any]:
    return {
        **_of_post(report.post),
        "kind": REPORT,
        "code": report.code,
        "message": report.message,
        "host": report.host,
        "user": report.user,
        "seconds": report.seconds,
    }


def _of_post(post: Post) -> dict[str, Any]:
    parts = post.parts
    return {
        "moment": _time(post.moment),
        "relpath": post.relpath,
        "name": post.name,
        "base_url": post.base_url,
        "event": post.event.value,
        "sum": None if post.sum is None else str(post.sum),
        "size": None if parts is None else parts.file_size,
        "length": None if parts is None else parts.length,
        "block": None if parts is None or parts.single else parts.number,
        "blocks": None if parts is None or parts.single else parts.count,
        "source": post.source,
        "from_cluster": post.from_cluster,
        "to_clusters": post.to_clusters,
    }


def _time(moment: int) -> datetime:
    seconds, nanoseconds = divmod(moment, 10**9)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=nanoseconds // 1000)


def summary(announcements: DataFrame) -> DataFrame:
    """Rows of silver to a row for each day and exchange.

    Latency is from a file's first announcement to the one at this exchange. Duplicates are repeated
    announcements of the same file, content and block; winnowed are those reported as such.
    """
    from pyspark.sql import functions as f

    post, report = f.col("kind") == POST, f.col("kind") == REPORT
    latency = f.when(post, f.col("at").cast("double") - f.col("moment").cast("double"))
    same = f.struct("relpath", "event", "sum", "block", "size")
    known = f.when(post & f.col("sum").isNotNull(), same)
    return (
        announcements.groupBy("day", "exchange")
        .agg(
            _count(post).alias("posts"),
            f.countDistinct(f.when(post, f.col("relpath"))).alias("files"),
            f.coalesce(f.sum(f.when(post, f.col("length"))), f.lit(0)).alias("bytes"),
            (f.count(known) - f.countDistinct(known)).alias("duplicates"),
            f.percentile_approx(latency, 0.5).alias("latency_p50"),
            f.percentile_approx(latency, 0.95).alias("latency_p95"),
            f.max(latency).alias("latency_max"),
            _count(report & f.col("code").between(200, 299)).alias("done"),
            _count(report & (f.col("code") == 304)).alias("unchanged"),
            _count(report & (f.col("message") == "duplicate")).alias("winnowed"),
            _count(report & (f.col("code") >= 400)).alias("failed"),
            f.percentile_approx(f.when(report, f.col("seconds")), 0.5).alias("took_p50"),
            _count(f.col("kind") == UNREADABLE).alias("unreadable"),
        )
        .orderBy("day", "exchange")
    )


def _count(which: Column) -> Column:
    from pyspark.sql import functions as f

    return f.count(f.when(which, f.lit(1)))
