"""Columns of numbers out of PostgreSQL, by binary COPY: as fast as NumPy can read memory.

Every column is a `bigint` or a `timestamptz` and never null; times come as microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from psycopg.sql import SQL

from penstock.store import Connection

Numbers = NDArray[np.int64]

#: Before the first row: a signature, flags, and the length of an extension there is none of.
_HEADER: Final = 19
_TRAILER: Final = 2
#: PostgreSQL counts from the first day of 2000.
_EPOCH: Final = 946_684_800_000_000


def fetch(
    connection: Connection, query: str, kinds: Mapping[str, str], parameters: Mapping[str, Any]
) -> dict[str, Numbers]:
    """What a query selects, by name; `kinds` has the columns in their order: `number`, `time`."""
    statement = SQL("COPY ({}) TO STDOUT (FORMAT BINARY)").format(SQL(query))
    with connection.cursor() as cursor, cursor.copy(statement, parameters) as copy:
        data = b"".join(copy)
    fields: list[tuple[str, str]] = [("fields", ">i2")]
    for name in kinds:
        fields += [(f"{name} length", ">i4"), (name, ">i8")]
    rows = np.frombuffer(data, np.dtype(fields), offset=_HEADER, count=_count(data, fields))
    return {
        name: rows[name].astype(np.int64) + (_EPOCH if kind == "time" else 0)
        for name, kind in kinds.items()
    }


def _count(data: bytes, fields: list[tuple[str, str]]) -> int:
    return (len(data) - _HEADER - _TRAILER) // np.dtype(fields).itemsize
