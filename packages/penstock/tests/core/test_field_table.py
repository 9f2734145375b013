"""Field tables: golden bytes, round trips, three other implementations, and bad input."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from struct import pack
from typing import Any

import amqp.serialization
import pamqp.decode
import pamqp.encode
import pika.data
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import WireSyntaxError
from penstock.core.field_table import (
    MAX_DEPTH,
    decode_table,
    encode_table,
)

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def table_of(field: bytes) -> bytes:
    """A table with one field, `k`, of the given type letter and value."""
    content = b"\x01k" + field
    return pack(">I", len(content)) + content


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b"t\x01", True),
        (b"t\x00", False),
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"I\xff\xff\xff\xff", -1),
        (b"i\xff\xff\xff\xff", 4294967295),
        (b"l" + b"\xff" * 8, -1),
        (b"L" + b"\xff" * 8, -1),
        (b"f\x3f\xc0\x00\x00", 1.5),
        (b"d\x3f\xf8" + bytes(6), 1.5),
        (b"D\x02\x00\x00\x01\x3a", Decimal("3.14")),
        (b"D\x01\xff\xff\xff\xf1", Decimal("-1.5")),
        (b"S\x00\x00\x00\x03\xc3\xa9!", "é!"),
        (b"S\x00\x00\x00\x01\xff", b"\xff"),
        (b"x\x00\x00\x00\x02hi", b"hi"),
        (b"A\x00\x00\x00\x03t\x01V", [True, None]),
        (b"T" + pack(">Q", 1767323045), MOMENT),
        (b"F\x00\x00\x00\x03\x01aV", {"a": None}),
        (b"V", None),
    ],
)
def test_each_type_letter_is_read_as_rabbitmq_reads_it(field: bytes, value: Any) -> None:
    table = table_of(field)

    decoded, end = decode_table(table)

    assert decoded == {"k": value}
    assert type(decoded["k"]) is type(value)
    assert end == len(table)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (True, b"t\x01"),
        (7, b"I\x00\x00\x00\x07"),
        (-(2**31), b"I\x80\x00\x00\x00"),
        (2**31, b"l\x00\x00\x00\x00\x80\x00\x00\x00"),
        (1.5, b"d\x3f\xf8" + bytes(6)),
        (Decimal("3.14"), b"D\x02\x00\x00\x01\x3a"),
        (Decimal("2E+3"), b"D\x00\x00\x00\x07\xd0"),
        ("é!", b"S\x00\x00\x00\x03\xc3\xa9!"),
        (b"\xff", b"x\x00\x00\x00\x01\xff"),
        ([True, None], b"A\x00\x00\x00\x03t\x01V"),
        ((), b"A\x00\x00\x00\x00"),
        (MOMENT, b"T" + pack(">Q", 1767323045)),
        (MOMENT.replace(tzinfo=None), b"T" + pack(">Q", 1767323045)),
        ({"a": None}, b"F\x00\x00\x00\x03\x01aV"),
        (None, b"V"),
    ],
)
def test_each_value_is_written_with_a_letter_that_every_client_knows(
    value: Any, field: bytes
) -> None:
    assert encode_table({"k": value}) == table_of(field)


def test_a_moment_beyond_the_calendar_is_a_number() -> None:
    decoded, _ = decode_table(table_of(b"T" + pack(">Q", 1767323045000)))

    assert decoded == {"k": 1767323045000}


def test_a_table_is_read_where_it_stands() -> None:
    data = b"before" + encode_table({"a": 1}) + b"after"

    assert decode_table(data, 6) == ({"a": 1}, len(data) - 5)


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.builds(
        lambda digits, scale: Decimal(digits).scaleb(-scale),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(0, 20),
    )
    # pamqp takes what lies beyond 2106 for milliseconds.
    | st.integers(0, 2**32 - 1).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
)
names = st.text(max_size=30)  # pamqp cuts names at 128 bytes
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=20,
)
tables = st.dictionaries(names, values, max_size=6)


@given(tables)
def test_what_is_written_is_read_back(table: dict[str, Any]) -> None:
    encoded = encode_table(table)

    assert decode_table(encoded) == (table, len(encoded))


@given(st.lists(values, max_size=6))
def test_arrays_are_values_too(array: list[Any]) -> None:
    encoded = encode_table({"a": array})

    assert decode_table(encoded) == ({"a": array}, len(encoded))


def comparable(value: Any, *, floats: bool = True, decimals: bool = True) -> Any:
    """A value in the form on which the implementations agree.

    pika turns doubles into integers, pamqp reads decimals as unsigned, and py-amqp's moments have
    no zone; bytes that are text come back as text from some.
    """
    if isinstance(value, dict):
        return {
            key: comparable(inner, floats=floats, decimals=decimals) for key, inner in value.items()
        }
    if isinstance(value, list):
        return [comparable(inner, floats=floats, decimals=decimals) for inner in value]
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, float) and not floats:
        return "a float"
    if isinstance(value, Decimal) and not decimals:
        return "a decimal"
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    return value


@given(tables)
def test_pamqp_reads_what_we_write(table: dict[str, Any]) -> None:
    _, decoded = pamqp.decode.field_table(encode_table(table))

    assert comparable(decoded, decimals=False) == comparable(table, decimals=False)


@given(tables)
def test_py_amqp_reads_what_we_write(table: dict[str, Any]) -> None:
    (decoded,), _ = amqp.serialization.loads("F", encode_table(table), 0)

    assert comparable(decoded) == comparable(table)


def without_floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_floats(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_floats(inner) for inner in value]
    return None if isinstance(value, float) else value


@given(tables.map(without_floats))
def test_pika_reads_what_we_write(table: dict[str, Any]) -> None:
    decoded, _ = pika.data.decode_table(encode_table(table), 0)

    assert comparable(decoded) == comparable(table)


@given(tables)
def test_we_read_what_pamqp_writes(table: dict[str, Any]) -> None:
    # pamqp writes single floats and cannot write bytes, nor every decimal.
    plain = comparable(without_floats(table))
    plain = {key: value for key, value in plain.items() if is_plain(value)}
    encoded = pamqp.encode.field_table(plain)

    decoded, _ = decode_table(encoded)

    assert decoded == plain


def is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(is_plain(inner) for inner in value.values())
    if isinstance(value, list):
        return all(is_plain(inner) for inner in value)
    return not isinstance(value, bytes | Decimal | datetime)


# Bad input.

RICH = encode_table(
    {
        "string": "text",
        "number": 1,
        "long": 2**40,
        "double": 1.5,
        "decimal": Decimal("1.5"),
        "moment": MOMENT,
        "bytes": b"\xff",
        "array": [1, "two", {"three": None}],
        "table": {"nested": {"deeper": True}},
    }
)


@pytest.mark.parametrize("length", range(len(RICH)))
def test_a_table_cut_anywhere_is_refused(length: int) -> None:
    with pytest.raises(WireSyntaxError):
        decode_table(RICH[:length])


@pytest.mark.parametrize("shorter", range(1, len(RICH) - 3))
def test_a_table_whose_length_lies_is_refused_or_ends_between_fields(shorter: int) -> None:
    lying = pack(">I", len(RICH) - 4 - shorter) + RICH[4:]

    try:
        table, end = decode_table(lying)
    except WireSyntaxError:
        return
    assert encode_table(table) == lying[:end]


def test_the_end_given_by_the_caller_holds() -> None:
    data = encode_table({"a": 1}) + b"more"

    with pytest.raises(WireSyntaxError, match="table at byte 0 runs past the end"):
        decode_table(data, 0, len(data) - 5)


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        (b"?", r"unknown field type b'\?' at byte 6"),
        (b"I\x00", "32-bit integer at byte 7 runs past the end"),
        (b"S\xff\xff\xff\xffabc", "string at byte 7 runs past the end"),
        (b"F\x00\x00\x00\x09", "table at byte 7 runs past the end"),
        (b"A\x00\x00\x00\x01Z", "unknown field type b'Z' at byte 11"),
    ],
)
def test_the_complaint_says_what_and_where(field: bytes, complaint: str) -> None:
    with pytest.raises(WireSyntaxError, match=complaint):
        decode_table(table_of(field))


def test_a_name_that_is_not_text_is_refused() -> None:
    with pytest.raises(WireSyntaxError, match="field name at byte 4 is not UTF-8"):
        decode_table(b"\x00\x00\x00\x03\x01\xffV")


def nested_tables(levels: int) -> bytes:
    data = b"\x00\x00\x00\x00"
    for _ in range(levels - 1):
        data = pack(">I", len(data) + 2) + b"\x00F" + data
    return data


def nested_arrays(levels: int) -> bytes:
    data = b"\x00\x00\x00\x00"
    for _ in range(levels - 1):
        data = pack(">I", len(data) + 1) + b"A" + data
    return pack(">I", len(data) + 2) + b"\x00A" + data


def test_nesting_is_read_to_the_limit() -> None:
    assert decode_table(nested_tables(MAX_DEPTH))[1] > 0
    assert decode_table(nested_arrays(MAX_DEPTH - 1))[1] > 0


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 1_000, 10_000])
def test_deeper_nesting_is_refused(levels: int) -> None:
    with pytest.raises(WireSyntaxError, match="nested too deep"):
        decode_table(nested_tables(levels))
    with pytest.raises(WireSyntaxError, match="nested too deep"):
        decode_table(nested_arrays(levels))


def test_a_table_that_holds_itself_cannot_be_written() -> None:
    table: dict[str, Any] = {}
    table["self"] = [table]

    with pytest.raises(WireSyntaxError, match="nested too deep"):
        encode_table(table)


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        object(),
        "\ud800",
        Decimal("1E+999999999"),
        Decimal("0.12345678901"),
        Decimal("NaN"),
        Decimal("1E-256"),
    ],
)
def test_what_no_letter_holds_cannot_be_written(value: Any) -> None:
    with pytest.raises(WireSyntaxError):
        encode_table({"k": value})


def test_a_name_over_255_bytes_cannot_be_written() -> None:
    with pytest.raises(WireSyntaxError, match="longer than 255 bytes"):
        encode_table({"é" * 128: 1})


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    # Given an honest length, more of the bytes are looked at.
    for candidate in (data, pack(">I", len(data)) + data):
        try:
            table, end = decode_table(candidate)
        except WireSyntaxError:
            continue
        assert end <= len(candidate)
        again = encode_table(table)
        assert encode_table(decode_table(again)[0]) == again
