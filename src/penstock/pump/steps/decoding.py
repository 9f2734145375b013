"""From messages to announcements: bronze in, silver out, in Spark's workers.

Every message becomes a row. One that is neither a post nor a report becomes one as well, with the
reason: "what happened to this file?" may be answered by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.pump.errors import BadPost
from penstock.pump.posts.post import Post
from penstock.pump.posts.reading import read_post
from penstock.pump.posts.reports import Report, read_report
from penstock.pump.steps.columns import MESSAGE, POST, REPORT, SCHEMA, UNREADABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REPORT: Final = re.compile(r"(?:[^.]+\.)?v\d\d\.report(?:\.|$)")


def announcements(messages: DataFrame) -> DataFrame:
    """Bronze's messages as silver's rows."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return messages.select(*MESSAGE).mapInArrow(_decoded, from_arrow_schema(SCHEMA))


def _decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pylist([row_of(each) for each in batch.to_pylist()], SCHEMA)


def row_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """One message, as the connector has it, as a row of silver."""
    place = {
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
            return {**place, **_of_report(read_report(body, headers))}
        return {**place, "kind": POST, **_of_post(read_post(body, headers))}
    except BadPost as error:
        return {**place, "kind": UNREADABLE, "code": error.code, "message": str(error)}


def is_report(routing_key: str) -> bool:
    """By its topic: `v02.report…`, with the exchange before it where it came over MQTT."""
    return _REPORT.match(routing_key) is not None


def _of_report(report: Report) -> dict[str, Any]:
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
