"""Columns of numbers out of PostgreSQL: each as one value of bytes, which NumPy reads as it is.

Every column is a `bigint` or a `timestamptz` and never null; times come as microseconds since 1970.
A row at a time would cost more than all that is done with them.
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
#: PostgreSQL counts from the first day of 2000.
_EPOCH: Final = 946_684_800_000_000


def fetch_columns(
    connection: Connection, query: str, kinds: Mapping[str, str], parameters: Mapping[str, Any]
) -> dict[str, Numbers]:
    """What a query selects, by name; `kinds` has the columns in their order: `number`, `time`."""
    columns = [
        SQL("string_agg({}({}), '')").format(Identifier(_SEND_FUNCTIONS[kind]), Identifier(name))
        for name, kind in kinds.items()
    ]
    statement = SQL("SELECT {} FROM ({}) AS rows ({})").format(
        SQL(", ").join(columns), SQL(query), SQL(", ").join(map(Identifier, kinds))
    )
    with connection.cursor(row_factory=tuple_row, binary=True) as cursor:
        row = cursor.execute(statement, parameters).fetchone()
    assert row is not None  # an aggregate has one
    return {
        name: _read(data or b"", _EPOCH if kind == "time" else 0)
        for (name, kind), data in zip(kinds.items(), row, strict=True)
    }


def _read(data: bytes, epoch: int) -> Numbers:
    return np.frombuffer(data, ">i8").astype(np.int64) + epoch
