"""Columns from PostgreSQL as Arrow and NumPy arrays: each column arrives as one binary value.

Reading row by row would cost more than everything that is computed from the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from psycopg.rows import tuple_row
from psycopg.sql import SQL, Composable, Identifier

from penstock_hives.arrays import Numbers
from penstock_store import Connection

_SEND_FUNCTIONS: Final = {"number": "int8send", "time": "timestamptz_send"}
#: PostgreSQL counts from 2000-01-01.
_EPOCH: Final = 946_684_800_000_000


def fetch_columns(
    connection: Connection,
    query: str,
    kinds: Mapping[str, str],
    parameters: Mapping[str, Any],
) -> dict[str, Numbers]:
    """The columns of a query by name; `kinds` has them in order: `number` or `time`.

    Columns are `bigint` or `timestamptz` and not null; times are microseconds since 1970.
    """
    row = _fetch(connection, _column_statement(query, tuple(kinds.items())), parameters)
    return {
        name: _numbers(data or b"") + (_EPOCH if kind == "time" else 0)
        for (name, kind), data in zip(kinds.items(), row, strict=True)
    }


def fetch_table(
    connection: Connection,
    query: str,
    schema: pa.Schema,
    parameters: Mapping[str, Any],
) -> pa.Table:
    """The rows of a query, whose columns are those of the schema in order, with nulls.

    Integers are `bigint` in the query, texts `text`; `timestamptz` and `timestamp` are
    microseconds.
    """
    row = _fetch(connection, _table_statement(query, schema), parameters)
    arrays = [
        _array(field, data or b"", np.frombuffer(present or b"", ">i4"))
        for field, data, present in zip(schema, row[::2], row[1::2], strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _fetch(connection: Connection, statement: str, parameters: Mapping[str, Any]) -> Any:
    with connection.cursor(row_factory=tuple_row, binary=True) as cursor:
        row = cursor.execute(statement, parameters).fetchone()
    assert row is not None  # aggregates return one row
    return row


@lru_cache
def _column_statement(query: str, kinds: tuple[tuple[str, str], ...]) -> str:
    columns = [
        SQL("string_agg({}({}), '')").format(Identifier(_SEND_FUNCTIONS[kind]), Identifier(name))
        for name, kind in kinds
    ]
    return _statement(query, [name for name, _ in kinds], columns)


@lru_cache
def _table_statement(query: str, schema: pa.Schema) -> str:
    columns = [
        expression
        for field in schema
        for expression in (_values(field), SQL("string_agg({}, '')").format(_present(field)))
    ]
    return _statement(query, schema.names, columns)


def _statement(query: str, names: list[str], columns: Sequence[Composable]) -> str:
    statement = SQL("SELECT {} FROM ({}) AS rows ({})").format(
        SQL(", ").join(columns), SQL(query), SQL(", ").join(map(Identifier, names))
    )
    return statement.as_string()


def _values(field: pa.Field) -> Composable:
    """Nulls are left out."""
    name = Identifier(field.name)
    if pa.types.is_binary(field.type):
        return SQL("string_agg({}, '')").format(name)
    return SQL("string_agg({}({}), '')").format(Identifier(_send_function(field.type)), name)


def _present(field: pa.Field) -> Composable:
    """The length of each value, -1 for null."""
    length = (
        SQL("octet_length({})").format(Identifier(field.name))
        if _is_variable(field.type)
        else SQL("CASE WHEN {} IS NULL THEN NULL ELSE 1 END").format(Identifier(field.name))
    )
    return SQL("int4send(coalesce({}, -1))").format(length)


def _is_variable(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _send_function(kind: pa.DataType) -> str:
    if pa.types.is_string(kind):
        return "textsend"
    if pa.types.is_floating(kind):
        return "float8send"
    if pa.types.is_boolean(kind):
        return "boolsend"
    if pa.types.is_timestamp(kind):
        return "timestamp_send" if kind.tz is None else "timestamptz_send"
    return "int8send"


def _array(field: pa.Field, data: bytes, lengths: np.ndarray[Any, Any]) -> pa.Array:
    kind, absent = field.type, lengths < 0
    if _is_variable(kind):
        ends = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(np.maximum(lengths, 0), out=ends[1:])
        valid = pa.array(~absent).buffers()[1] if absent.any() else None
        buffers = [valid, pa.py_buffer(ends), pa.py_buffer(data)]
        return pa.Array.from_buffers(kind, len(lengths), buffers)
    if pa.types.is_boolean(kind):
        return _spread(np.frombuffer(data, np.uint8) > 0, absent, kind)
    if pa.types.is_floating(kind):
        return _spread(np.frombuffer(data, ">f8").astype(np.float64), absent, kind)
    shift = _EPOCH if pa.types.is_timestamp(kind) else 0
    return _spread(_numbers(data) + shift, absent, kind)


def _spread(values: np.ndarray[Any, Any], absent: np.ndarray[Any, Any], kind: Any) -> pa.Array:
    column = np.zeros(len(absent), values.dtype)
    column[~absent] = values
    return pa.array(column, mask=absent if absent.any() else None).cast(kind)


def _numbers(data: bytes) -> Numbers:
    return np.frombuffer(data, ">i8").astype(np.int64)
