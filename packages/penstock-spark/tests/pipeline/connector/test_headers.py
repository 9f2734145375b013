"""Header values as text."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from penstock.core.field_table import encode_table
from penstock_spark.connector.columns import decode_headers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        ("7", "7"),
        (7, "7"),
        (True, "true"),
        (1.5, "1.5"),
        (None, None),
        ([1, "two", None], '[1, "two", null]'),
        ({"a": {"b": False}}, '{"a": {"b": false}}'),
        (datetime(2026, 1, 31, 8, 0, tzinfo=UTC), '"2026-01-31T08:00:00Z"'),
        (b"\x00\xff", '"AP8="'),
        (Decimal("1.25"), "1.25"),
        (Decimal(3), "3"),
        ("žluťoučký", "žluťoučký"),
    ],
)
def test_a_string_is_itself_and_all_else_is_json(value: Any, text: str | None) -> None:
    table = encode_table({"name": value})[4:]

    assert decode_headers([table]).to_pylist() == [[("name", text)]]


@pytest.mark.parametrize("seconds", [253_402_300_800, 2**63 - 1], ids=["year 10000", "largest"])
def test_a_timestamp_beyond_the_year_9999_is_a_number(seconds: int) -> None:
    far = b"\x04nameT" + seconds.to_bytes(8, "big")
    table = encode_table({"other": "text"})[4:]

    assert decode_headers([far + table, table]).to_pylist() == [
        [("name", str(seconds)), ("other", "text")],
        [("other", "text")],
    ]


def test_the_offset_is_no_header() -> None:
    table = encode_table({"x-stream-offset": 7})[4:]

    assert decode_headers([table, b"", None]).to_pylist() == [None, None, None]
