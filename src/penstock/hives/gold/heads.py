"""Counting heads: what an operator has seen is the truth from then on."""

from __future__ import annotations

from datetime import datetime

from penstock.store import Connection

#: What was said is never unsaid: a count of the same moment comes a moment later.
_RECORD = """
    INSERT INTO manual_count (hive_id, at, counted, by)
    SELECT %(hive)s, greatest(%(at)s, max(at) + interval '1 microsecond'), %(counted)s, %(by)s
    FROM manual_count
    WHERE hive_id = %(hive)s AND at >= %(at)s AND at < %(at)s + interval '1 second'
    RETURNING at
"""


def record_count(
    connection: Connection, hive: int, at: datetime, counted: int, by: str
) -> datetime:
    """Keep a count, and reckon with it in the next batch. The moment it holds from.

    The same moment counted again corrects what was said before.
    """
    given = {"hive": hive, "at": at, "counted": counted, "by": by}
    row = connection.execute(_RECORD, given).fetchone()
    assert row is not None
    moment: datetime = row["at"]
    return moment
