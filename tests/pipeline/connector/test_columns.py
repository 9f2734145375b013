"""Content headers taken apart by columns, against the broker's own decoder."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.core.properties import Properties, encode_header
from penstock.pipeline.brokers.contract import MESSAGES
from penstock.pipeline.connector.columns import ARROW_TYPES, Columns
from penstock.pipeline.connector.headers import text_of
from penstock.pipeline.connector.schema import SCHEMA

ALL = Columns(tuple(ARROW_TYPES))

short = st.none() | st.text(max_size=12)
properties = st.builds(
    Properties,
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


def _numbers(each: Properties) -> list[int]:
    return [value for value in (each.headers or {}).values() if isinstance(value, int)]


def batch(every: list[Properties], stamp: datetime | None = None) -> pa.RecordBatch:
    count = len(every)
    texts = pa.array(["key"] * count, pa.string()).dictionary_encode()
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(count), pa.int64()),
            pa.array([stamp] * count, MESSAGES.field("timestamp").type),
            texts,
            texts,
            pa.array([encode_header(each, 1) for each in every], pa.binary()),
            pa.array([b"x"] * count, pa.binary()),
        ],
        schema=MESSAGES,
    )


def headers_of(each: Properties) -> list[tuple[str, Any]] | None:
    pairs = [(name, text_of(value)) for name, value in (each.headers or {}).items()]
    return pairs or None


@settings(deadline=None)  # Arrow's functions are loaded by the first call
@given(st.lists(properties, max_size=8), st.integers(0, 3))
def test_columns_are_what_each_header_says(every: list[Properties], skip: int) -> None:
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

    built = ALL.build(batch([Properties(timestamp=7)], stamp), "s")

    assert built.column("timestamp").to_pylist() == [stamp]


def test_a_stamp_in_milliseconds_among_the_headers_is_finer_than_the_property() -> None:
    stamped = Properties(timestamp=7, headers={"timestamp_in_ms": 7123})
    plain = Properties(timestamp=8, headers={"timestamp_in_ms": "soon"})

    built = ALL.build(batch([stamped, plain]), "s")

    assert [each.timestamp() for each in built.column("timestamp").to_pylist()] == [7.123, 8.0]


def test_text_that_is_no_utf_8_is_shown_as_far_as_it_is() -> None:
    odd = batch([Properties(message_id="\udcff!")])

    assert ALL.build(odd, "s").column("message_id").to_pylist() == ["�!"]


def test_a_table_that_lies_costs_its_headers_and_not_the_message() -> None:
    good = encode_header(Properties(headers={"a": "b"}), 1)
    lying = good.replace(b"\x01aS", b"\x01a?")
    column = pa.array([good, lying], pa.binary())
    odd = batch([Properties(), Properties()]).set_column(4, "properties", column)

    assert ALL.build(odd, "s").column("headers").to_pylist() == [[("a", "b")], None]


def test_spark_and_arrow_have_the_same_schema() -> None:
    assert to_arrow_schema(SCHEMA, timezone="UTC").equals(pa.schema(list(ARROW_TYPES.items())))


def test_only_the_columns_asked_for_are_made() -> None:
    built = Columns(("body", "offset")).build(batch([Properties()]), "s")

    assert built.schema.names == ["body", "offset"]
