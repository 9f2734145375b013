"""Schemas as text, inference, and growth."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.core.errors import ConfigurationError
from penstock_spark.landing.types import (
    MAX_DEPTH,
    add_fields,
    infer_type,
    merge_types,
    parse_schema,
    sql_columns,
)


@pytest.mark.parametrize(
    "text",
    [
        "id BIGINT",
        "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e FLOAT, f DOUBLE, g STRING, h BINARY, i DATE",
        "at TIMESTAMP, local TIMESTAMP_NTZ, price DECIMAL(10,2)",
        "tags ARRAY<STRING>, counts MAP<STRING, BIGINT>",
        "place STRUCT<lat: DOUBLE, lon: DOUBLE, names: ARRAY<STRUCT<lang: STRING>>>",
    ],
)
def test_a_schema_is_what_its_text_says(text: str) -> None:
    assert sql_columns(parse_schema(text, "schema")) == text


def test_synonyms_quotes_and_case_are_accepted() -> None:
    parsed = parse_schema("`order` long, n integer, t varchar, d decimal", "schema")
    assert sql_columns(parsed) == "order BIGINT, n INT, t STRING, d DECIMAL(10,0)"


def test_the_json_of_a_spark_schema_is_accepted() -> None:
    text = (
        '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
        '{"name":"at","type":"timestamp","nullable":true,"metadata":{}}]}'
    )
    assert sql_columns(parse_schema(text, "schema")) == "id BIGINT, at TIMESTAMP"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no columns"),
        ("id", "too early"),
        ("id BIGNUM", "unknown type BIGNUM"),
        ("id BIGINT name STRING", "unexpected 'name'"),
        ("a ARRAY<STRING", "too early"),
        ("m MAP<BIGINT, STRING>", "keys of a MAP"),
        ("d DECIMAL(40,2)", "38 digits"),
        ("a BIGINT, A STRING", "without case"),
        ("`a b` BIGINT", "'a_b'"),
        ("a BIGINT; b", "unexpected"),
        ("{}", "JSON of a schema"),
    ],
)
def test_a_schema_that_is_none_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_schema(text, "schema")


def typed(value: Any) -> str:
    found = infer_type(value)
    return sql_columns(pa.schema(list(found))) if pa.types.is_struct(found) else str(found)


def test_types_are_inferred_from_values() -> None:
    record = {"a": 1, "b": 1.5, "c": "x", "d": True, "e": [1, 2.5], "f": {"g": [{"h": "i"}]}}
    assert typed(record) == (
        "a BIGINT, b DOUBLE, c STRING, d BOOLEAN, e ARRAY<DOUBLE>, "
        "f STRUCT<g: ARRAY<STRUCT<h: STRING>>>"
    )


def test_what_does_not_tell_a_type_has_no_column_yet() -> None:
    assert typed({"a": None, "b": [], "c": {}, "d": [None, {}], "e": 1}) == "e BIGINT"


def test_values_of_different_types_become_text() -> None:
    assert typed({"a": [1, "x"], "b": [{"c": 1}, 2], "d": [True, 1]}) == (
        "a ARRAY<STRING>, b ARRAY<STRING>, d ARRAY<STRING>"
    )


def test_integers_beyond_64_bits_are_doubles_and_depth_has_an_end() -> None:
    assert typed({"a": 2**63}) == "a DOUBLE"
    deep: Any = 1
    for _ in range(MAX_DEPTH + 5):
        deep = {"a": deep}
    assert str(infer_type(deep)).count("struct") == MAX_DEPTH


def test_names_that_delta_refuses_are_changed() -> None:
    assert typed({"first name": 1, "a.b": 2, "": 3}) == "first_name BIGINT, a.b BIGINT, _ BIGINT"


def test_a_table_grows_by_fields_and_keeps_its_types() -> None:
    known = pa.struct(
        list(parse_schema("id BIGINT, p STRUCT<x: DOUBLE>, m MAP<STRING, STRUCT<a: INT>>", ""))
    )
    found = infer_type(
        {"id": "text", "ID": 1, "p": {"x": "no", "y": 1}, "new": [1], "m": {"k": {"b": 1}}}
    )
    grown = add_fields(known, found)
    assert sql_columns(pa.schema(list(grown))) == (
        "id BIGINT, p STRUCT<x: DOUBLE, y: BIGINT>, m MAP<STRING, STRUCT<a: INT, b: BIGINT>>, "
        "new ARRAY<BIGINT>"
    )
    assert add_fields(grown, found) == grown
    assert merge_types(found, pa.null()) == found
