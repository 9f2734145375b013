"""Content headers taken apart by columns, against the broker's own decoder."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.core.basic_properties import BasicProperties, encode_header
from penstock_spark.connector.columns import ARROW_TYPES, MessageColumns, header_text
from penstock_spark.connector.source import SPARK_SCHEMA
from penstock_spark.streams.backend import RECORD_SCHEMA

ALL = MessageColumns(tuple(ARROW_TYPES))

short = st.none() | st.text(max_size=12)
properties = st.builds(
    BasicProperties,
    content_type=short,
    content_encoding=short,
    headers=st.none() | st.dictionaries(st.text("abc", min_size=1), st.integers() | st.text()),
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=short,
    reply_to=short,
    expiration=short,
    message_id=short,
    timestamp=st.none() | st.integers(0, 2**32),
    type=short,
    app_id=short,
).filter(lambda each: all(abs(n) < 2**63 for n in _numbers(each)))


def _numbers(each: BasicProperties) -> list[int]:
    return [value for value in (each.headers or {}).values() if isinstance(value, int)]


def batch(every: list[BasicProperties], stamp: datetime | None = None) -> pa.RecordBatch:
    count = len(every)
    texts = pa.array(["key"] * count, pa.string()).dictionary_encode()
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(count), pa.int64()),
            pa.array([stamp] * count, RECORD_SCHEMA.field("timestamp").type),
            texts,
            texts,
            pa.array([encode_header(each, 1) for each in every], pa.binary()),
            pa.array([b"x"] * count, pa.binary()),
        ],
        schema=RECORD_SCHEMA,
    )


def headers_of(each: BasicProperties) -> list[tuple[str, Any]] | None:
    pairs = [(name, header_text(value)) for name, value in (each.headers or {}).items()]
    return pairs or None


@settings(deadline=None)  # Arrow's functions are loaded by the first call
@given(st.lists(properties, max_size=8), st.integers(0, 3))
def test_columns_are_what_each_header_says(every: list[BasicProperties], skip: int) -> None:
    built = ALL.build(batch(every).slice(skip), "sensors")

    rows = built.to_pylist()
    left = every[skip:]
    assert [row["content_type"] for row in rows] == [each.content_type for each in left]
    assert [row["message_id"] for row in rows] == [each.message_id for each in left]
    assert [row["headers"] for row in rows] == [headers_of(each) for each in left]
    assert [row["timestamp"] for row in rows] == [
        None if each.timestamp is None else datetime.fromtimestamp(each.timestamp, UTC)
        for each in left
    ]
    assert {row["stream"] for row in rows} <= {"sensors"}


def test_the_brokers_own_time_comes_before_the_publishers() -> None:
    stamp = datetime(2026, 1, 1, 12, 0, 0, 5000, UTC)

    built = ALL.build(batch([BasicProperties(timestamp=7)], stamp), "s")

    assert built.column("timestamp").to_pylist() == [stamp]


def test_a_stamp_in_milliseconds_among_the_headers_is_finer_than_the_property() -> None:
    stamped = BasicProperties(timestamp=7, headers={"timestamp_in_ms": 7123})
    plain = BasicProperties(timestamp=8, headers={"timestamp_in_ms": "soon"})

    built = ALL.build(batch([stamped, plain]), "s")

    assert [each.timestamp() for each in built.column("timestamp").to_pylist()] == [7.123, 8.0]


def test_a_timestamp_beyond_the_year_9999_is_null() -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    milliseconds = int(last.timestamp()) * 1000
    every = [
        BasicProperties(timestamp=milliseconds),
        BasicProperties(timestamp=milliseconds + 1000),
        BasicProperties(timestamp=2**64 - 1),
        BasicProperties(timestamp=7, headers={"timestamp_in_ms": milliseconds + 1000}),
        BasicProperties(timestamp=8),
    ]

    built = ALL.build(batch(every), "s")

    assert built.column("timestamp").to_pylist() == [
        last,
        None,
        None,
        datetime.fromtimestamp(7, UTC),
        datetime.fromtimestamp(8, UTC),
    ]


def test_text_that_is_no_utf_8_is_shown_as_far_as_it_is() -> None:
    odd = batch([BasicProperties(message_id="\udcff!")])

    assert ALL.build(odd, "s").column("message_id").to_pylist() == ["�!"]


def test_a_table_that_lies_costs_its_headers_and_not_the_message() -> None:
    good = encode_header(BasicProperties(headers={"a": "b"}), 1)
    lying = good.replace(b"\x01aS", b"\x01a?")
    column = pa.array([good, lying], pa.binary())
    odd = batch([BasicProperties(), BasicProperties()]).set_column(4, "properties", column)

    assert ALL.build(odd, "s").column("headers").to_pylist() == [[("a", "b")], None]


def test_spark_and_arrow_have_the_same_schema() -> None:
    assert to_arrow_schema(SPARK_SCHEMA, timezone="UTC").equals(
        pa.schema(list(ARROW_TYPES.items()))
    )


def test_only_the_columns_asked_for_are_made() -> None:
    built = MessageColumns(("body", "offset")).build(batch([BasicProperties()]), "s")

    assert built.schema.names == ["body", "offset"]
