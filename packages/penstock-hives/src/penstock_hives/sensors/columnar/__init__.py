"""Columnar decoders: a column of message bodies in, columns of fields out.

Each row decodes as `protocol` decodes it; a test compares both. A million rows take a fraction of a
second. A rejected frame has its `reason` and nulls in its row and does not affect other rows. Use
with Spark's `mapInArrow`: rows keep their order and column types are types that Spark accepts.
"""

from penstock_hives.sensors.columnar.messages import decode_events, decode_statuses, parse_topics
from penstock_hives.sensors.columnar.reports import decode_reports

__all__ = ["decode_events", "decode_reports", "decode_statuses", "parse_topics"]
