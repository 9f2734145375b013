"""The columns of silver's table of announcements, and of the day's summary.

A row is one message as one exchange carried it: a post, or a report on one. So a file's way is its
rows in the order of `at`, and what an exchange did in a day is a sum over its rows.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

ANNOUNCEMENTS: Final = "silver.announcements"
SUMMARY: Final = "gold.summary"

POST: Final = "post"
REPORT: Final = "report"
UNREADABLE: Final = "unreadable"

_TIME: Final = pa.timestamp("us", "UTC")

SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),  # post, report, or unreadable
        ("at", _TIME),  # when it came to the broker
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
        ("length", pa.int64()),  # of what this one is about: the file, or a block of it
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
#: What of a message is needed to read it.
MESSAGE: Final = (
    "stream",
    "offset",
    "timestamp",
    "exchange",
    "routing_key",
    "headers",
    "body",
    "day",
)
