"""Columnar decoders: a column of message bodies in, columns of fields out.

Each row decodes as `protocol` decodes it; a test compares both. A million rows take a fraction of a
second. A rejected frame has its `reason` and nulls in its row and does not affect other rows. Use
with Spark's `mapInArrow`: rows keep their order and column types are types that Spark accepts.
"""

from penstock_hives.sensors.columnar.events import EVENT_SCHEMA, decode_events
from penstock_hives.sensors.columnar.reports import REPORT_SCHEMA, decode_reports
from penstock_hives.sensors.columnar.statuses import STATUS_SCHEMA, decode_statuses
from penstock_hives.sensors.columnar.topics import TOPIC_SCHEMA, parse_topics

__all__ = [
    "EVENT_SCHEMA",
    "REPORT_SCHEMA",
    "STATUS_SCHEMA",
    "TOPIC_SCHEMA",
    "decode_events",
    "decode_reports",
    "decode_statuses",
    "parse_topics",
]
