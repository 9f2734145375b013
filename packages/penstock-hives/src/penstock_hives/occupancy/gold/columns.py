"""Numeric columns from PostgreSQL: each column as one binary value that NumPy reads directly.

Columns are `bigint` or `timestamptz` and not null; times are microseconds since 1970. Reading row
by row would cost more than everything that is computed from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from psycopg.rows import tuple_row
from psycopg.sql import SQL, Identifier

from penstock_hives.arrays import Numbers
from penstock_store import Connection

_SEND_FUNCTIONS: Final = {"number": "int8send", "time": "timestamptz_send"}
#: PostgreSQL counts from 2000-01-01.
_EPOCH: Final = 946_684_800_000_000


def fetch_columns(
    connection: Connection, query: str, kinds: Mapping[str, str], parameters: Mapping[str, Any]
) -> dict[str, Numbers]:
    """The columns of a query by name; `kinds` has them in order: `number` or `time`."""
    columns = [
        SQL("string_agg({}({}), '')").format(Identifier(_SEND_FUNCTIONS[kind]), Identifier(name))
        for name, kind in kinds.items()
    ]
    statement = SQL("SELECT {} FROM ({}) AS rows ({})").format(
        SQL(", ").join(columns), SQL(query), SQL(", ").join(map(Identifier, kinds))
    )
    with connection.cursor(row_factory=tuple_row, binary=True) as cursor:
        row = cursor.execute(statement, parameters).fetchone()
    assert row is not None  # aggregates return one row
    return {
        name: _read(data or b"", _EPOCH if kind == "time" else 0)
        for (name, kind), data in zip(kinds.items(), row, strict=True)
    }


def _read(data: bytes, epoch: int) -> Numbers:
    return np.frombuffer(data, ">i8").astype(np.int64) + epoch
