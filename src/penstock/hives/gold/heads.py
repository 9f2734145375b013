"""Counting heads: what an operator has seen is the truth from then on."""

from __future__ import annotations

from datetime import datetime

from penstock.store import Connection

_RECORD = """
    INSERT INTO manual_count (hive_id, at, counted, by)
    VALUES (%(hive)s, %(at)s, %(counted)s, %(by)s)
    ON CONFLICT (hive_id, at) DO UPDATE SET counted = excluded.counted, by = excluded.by
"""
#: A count that is said again, otherwise, is to be reckoned with again.
_AGAIN = "DELETE FROM hive_offset WHERE hive_id = %(hive)s AND at = %(at)s AND cause = 'manual'"


def record_count(connection: Connection, hive: int, at: datetime, counted: int, by: str) -> None:
    """Keep a count. The next batch, or the next slot's beginning, reckons with it.

    The same moment counted again corrects what was said before.
    """
    given = {"hive": hive, "at": at, "counted": counted, "by": by}
    connection.execute(_RECORD, given)
    connection.execute(_AGAIN, given)
