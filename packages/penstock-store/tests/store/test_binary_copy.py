"""Arrow into PostgreSQL and back: every type, every null, every odd text."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock_store import Database, connect
from penstock_store.binary_copy import (
    ENCODERS,
    HEADER,
    TRAILER,
    ColumnTypeMismatch,
    encode_rows,
)

UTC = dt.UTC
#: A column of each kind: its type there, its type in Arrow, and values it may have.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))  # noqa: DTZ001
COLUMNS: dict[str, tuple[str, Any, st.SearchStrategy[Any]]] = {
    "flag": ("boolean", pa.bool_(), st.booleans()),
    "small": ("smallint", pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "number": ("integer", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "big": ("bigint", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "single": ("real", pa.float32(), st.floats(width=32, allow_nan=False)),
    "double": ("double precision", pa.float64(), st.floats(allow_nan=False)),
    "day": ("date", pa.date32(), st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1))),
    "clock": ("time", pa.time64("us"), st.times()),
    "wall": ("timestamp", pa.timestamp("us"), MOMENTS),
    "moment": (
        "timestamptz",
        pa.timestamp("us", "UTC"),
        MOMENTS.map(lambda value: value.replace(tzinfo=UTC)),
    ),
    "words": ("text", pa.string(), TEXT),
    "raw": ("bytea", pa.binary(), st.binary(max_size=12)),
    "document": ("jsonb", pa.string(), st.dictionaries(TEXT, st.integers() | TEXT, max_size=3)),
    "tags": ("text[]", pa.list_(pa.string()), st.lists(st.none() | TEXT, max_size=3)),
}
NAMES = {"integer": "int4", "bigint": "int8", "smallint": "int2", "boolean": "bool"} | {
    "real": "float4",
    "double precision": "float8",
    "text[]": "_text",
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | column[2] for name, column in COLUMNS.items()}),
    max_size=6,
)


def batch_of(rows: list[dict[str, Any]]) -> Any:
    arrays = []
    for name, (_, kind, _) in COLUMNS.items():
        values = [row[name] for row in rows]
        if name == "document":
            values = [None if value is None else json.dumps(value) for value in values]
        arrays.append(pa.array(values, kind))
    return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


def copied(url: str, batch: Any) -> list[dict[str, Any]]:
    """What the database has of it."""
    kinds = [COLUMNS[name][0] for name in batch.schema.names]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(batch.schema.names, kinds))  # noqa: B905
    with connect(url) as connection, connection.transaction(force_rollback=True):
        connection.execute(f"CREATE TABLE c (place int GENERATED ALWAYS AS IDENTITY, {columns})")
        listed = ", ".join(batch.schema.names)
        with connection.cursor().copy(f"COPY c ({listed}) FROM STDIN (FORMAT BINARY)") as copy:
            copy.write(HEADER)
            copy.write(encode_rows(batch, [NAMES.get(kind, kind) for kind in kinds]))
            copy.write(TRAILER)
        # A real is told in as few digits as tell it from other reals: as a double it is itself.
        exact = listed.replace("single", "single::double precision AS single")
        return connection.execute(f"SELECT {exact} FROM c ORDER BY place").fetchall()


@pytest.fixture(scope="module")
def url(embedded: str) -> str:
    return embedded


@settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(rows=ROWS)
def test_what_is_read_is_what_was_written(url: str, rows: list[dict[str, Any]]) -> None:
    assert copied(url, batch_of(rows)) == rows


@settings(
    max_examples=10,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(rows=ROWS, start=st.integers(0, 6))
def test_a_slice_of_a_batch_is_its_rows(url: str, rows: list[dict[str, Any]], start: int) -> None:
    assert copied(url, batch_of(rows).slice(start, 3)) == rows[start : start + 3]


def test_rows_of_numbers_only_are_laid_out_as_others_are(url: str) -> None:
    numbers = pa.RecordBatch.from_pydict({"number": [1, -2], "double": [0.5, 1e300]})

    assert copied(url, numbers) == [
        {"number": 1, "double": 0.5},
        {"number": -2, "double": 1e300},
    ]


def test_a_narrower_number_is_sent_in_the_columns_own_width(url: str) -> None:
    assert copied(url, pa.RecordBatch.from_pydict({"big": pa.array([7], pa.int8())})) == [
        {"big": 7}
    ]


def test_a_number_that_does_not_fit_is_refused_by_name(url: str) -> None:
    with pytest.raises(ColumnTypeMismatch, match="column number: int64 does not fit int4"):
        copied(url, pa.RecordBatch.from_pydict({"number": [2**40]}))


def test_a_moment_of_another_zone_is_the_same_moment(url: str) -> None:
    moment = dt.datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
    local = pa.array([moment], pa.timestamp("us", "Europe/Paris"))

    assert copied(url, pa.RecordBatch.from_pydict({"moment": local})) == [{"moment": moment}]


def test_the_character_postgresql_cannot_have_is_replaced(url: str) -> None:
    batch = pa.RecordBatch.from_pydict({"words": ["a\0b"], "tags": [["\0"]]})

    assert copied(url, batch) == [{"words": "a\ufffdb", "tags": ["\ufffd"]}]


@pytest.mark.parametrize(
    "text", ["", "\\N", '"', "a,b", "a\tb\nc\r\nd", "\\.", "NULL", "ünï ☃ 🐝", "'; DROP TABLE c"]
)
def test_odd_texts_stay_as_they_are(url: str, text: str) -> None:
    assert copied(url, pa.RecordBatch.from_pydict({"words": [text]})) == [{"words": text}]


def test_texts_of_other_arrow_types_are_texts(url: str) -> None:
    dictionary = pa.array(["bee", None, "bee"]).dictionary_encode()

    assert [
        row["words"] for row in copied(url, pa.RecordBatch.from_pydict({"words": dictionary}))
    ] == [
        "bee",
        None,
        "bee",
    ]


def test_a_type_nothing_is_sent_as_is_named() -> None:
    with pytest.raises(ColumnTypeMismatch, match="type polygon is not supported"):
        encode_rows(pa.RecordBatch.from_pydict({"x": [1]}), ["polygon"])


def test_every_kind_is_tried_here() -> None:
    tried = {NAMES.get(kind, kind) for kind, _, _ in COLUMNS.values()} | {"varchar"}

    assert tried == set(ENCODERS)


def test_nothing_is_nothing(database: Database) -> None:
    assert (
        encode_rows(pa.RecordBatch.from_pydict({"big": pa.array([], pa.int64())}), ["int8"]) == b""
    )
