"""The same messages from Arrow buffers: a column of bodies in, columns of fields out.

Row by row the answer is that of `messages`, and a test says so; but a million rows take a fraction
of a second. A frame that is no message has its `reason` and nulls in its row and touches no other,
however long or short it is. Made for Spark's `mapInArrow`, without knowing Spark: the columns that
come out have types it takes, and the rows are those that came in, in their order.
"""

from penstock.hives.sensors.columns.events import EVENTS, decode_events
from penstock.hives.sensors.columns.reports import REPORTS, decode_reports
from penstock.hives.sensors.columns.statuses import STATUSES, decode_statuses
from penstock.hives.sensors.columns.topics import TOPICS, parse_topics

__all__ = [
    "EVENTS",
    "REPORTS",
    "STATUSES",
    "TOPICS",
    "decode_events",
    "decode_reports",
    "decode_statuses",
    "parse_topics",
]
