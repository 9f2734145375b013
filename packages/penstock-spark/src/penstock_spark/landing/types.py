"""Column types: their SQL names, inference from values, and the rules by which a table grows.

A schema is written as in Spark's SQL, `id BIGINT, at TIMESTAMP, tags ARRAY<STRING>`, or as the JSON
of a Delta or Spark schema. Inference knows BOOLEAN, BIGINT, DOUBLE, STRING, structs and arrays.
Values of different types in one field give DOUBLE for numbers, and otherwise STRING.

Delta adds columns and fields of structs; it never changes the type of one. Delta compares names
without case and does not allow some characters in them: those become an underscore.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from penstock.core.errors import ConfigurationError

#: Deeper values are stored as JSON text.
MAX_DEPTH: Final = 12
#: The largest number of columns, with the fields of structs: a publisher whose keys are data would
#: otherwise add columns without end.
MAX_COLUMNS: Final = 1000

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_LONG_RANGE: Final = range(-(2**63), 2**63)

_SQL_TYPES: Final[dict[str, pa.DataType]] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
_SYNONYMS: Final = {
    "BOOL": "BOOLEAN",
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "VARCHAR": "STRING",
    "TEXT": "STRING",
}
_SQL_NAMES: Final = {kind: name for name, kind in _SQL_TYPES.items()}
_TOKEN: Final = re.compile(r"\s*(?:`([^`]+)`|([A-Za-z_][A-Za-z0-9_]*)|(\d+)|([<>(),:]))")
_NOT_IN_NAMES: Final = re.compile(r"[ ,;{}()\n\t=]")


@lru_cache(maxsize=10_000)
def column_name(key: str) -> str:
    """The name of the column for a key of a message."""
    return _NOT_IN_NAMES.sub("_", key) or "_"


def sql_type(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{each.name}: {sql_type(each.type)}' for each in kind)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{sql_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{sql_type(kind.key_type)}, {sql_type(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return _SQL_NAMES.get(kind, str(kind))


def sql_columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {sql_type(field.type)}" for field in schema)


def parse_schema(text: str, source: str) -> pa.Schema:
    """The schema of `name TYPE, …`, or of the JSON of a Delta or Spark schema."""
    if text.lstrip().startswith("{"):
        schema = _parse_json(text, source)
    else:
        schema = pa.schema(_SchemaParser(text, source).columns())
    _check_names(schema, source)
    return schema


def _parse_json(text: str, source: str) -> pa.Schema:
    from deltalake import Schema

    try:
        return plain_schema(pa.schema(Schema.from_json(text)))
    except Exception as error:
        raise ConfigurationError(f"{source}: not the JSON of a schema: {error}") from error


def _check_names(fields: Iterable[pa.Field], source: str) -> None:
    seen: dict[str, str] = {}
    for each in fields:
        if (fixed := column_name(each.name)) != each.name:
            raise ConfigurationError(
                f"{source}: Delta allows no column {each.name!r}; call it {fixed!r}, which also "
                "stands for that key of messages"
            )
        if (other := seen.get(each.name.lower())) is not None:
            raise ConfigurationError(
                f"{source}: columns {other!r} and {each.name!r}: Delta compares names without case"
            )
        seen[each.name.lower()] = each.name
        if pa.types.is_struct(each.type):
            _check_names(each.type, f"{source}: {each.name}")


class _SchemaParser:
    def __init__(self, text: str, source: str) -> None:
        self._source = source
        self._tokens: list[str] = []
        text, at = text.strip(), 0
        while at < len(text):
            if (found := _TOKEN.match(text, at)) is None:
                raise self._error(f"unexpected {text[at : at + 10]!r}")
            self._tokens.append(next(filter(None, found.groups())))
            at = found.end()
        self._at = 0

    def columns(self) -> list[pa.Field]:
        found = self._fields(end=None)
        if not found:
            raise self._error("no columns")
        return found

    def _fields(self, end: str | None) -> list[pa.Field]:
        fields = []
        while self._peek() not in (None, end):
            name = self._next()
            if self._peek() == ":":
                self._next()
            fields.append(pa.field(name, self._type()))
            if self._peek() != ",":
                break
            self._next()
        if self._peek() != end:
            raise self._error(f"unexpected {self._peek()!r}")
        return fields

    def _type(self) -> pa.DataType:
        name = self._next().upper()
        match _SYNONYMS.get(name, name):
            case "ARRAY":
                (element,) = self._parameters(1)
                return pa.list_(element)
            case "MAP":
                key, value = self._parameters(2)
                if key != pa.string():
                    raise self._error("the keys of a MAP should be STRING")
                return pa.map_(key, value)
            case "STRUCT":
                self._expect("<")
                fields = self._fields(end=">")
                self._expect(">")
                if not fields:
                    raise self._error("a STRUCT without fields")
                return pa.struct(fields)
            case "DECIMAL" | "NUMERIC":
                return self._decimal()
            case known if known in _SQL_TYPES:
                return _SQL_TYPES[known]
        raise self._error(
            f"unknown type {name}; types are {', '.join(_SQL_TYPES)}, DECIMAL(p,s), ARRAY<t>, "
            "MAP<STRING, t>, STRUCT<name: t>"
        )

    def _parameters(self, count: int) -> list[pa.DataType]:
        self._expect("<")
        found = [self._type()]
        while len(found) < count:
            self._expect(",")
            found.append(self._type())
        self._expect(">")
        return found

    def _decimal(self) -> pa.DataType:
        if self._peek() != "(":
            return pa.decimal128(10, 0)
        self._next()
        numbers = [self._next()]
        if self._peek() == ",":
            self._next()
            numbers.append(self._next())
        self._expect(")")
        if not all(each.isdecimal() for each in numbers):
            raise self._error("DECIMAL should have a precision and a scale, DECIMAL(10,2)")
        precision, scale = int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0
        if not (1 <= precision <= 38 and scale <= precision):
            raise self._error(f"DECIMAL({precision},{scale}): at most 38 digits")
        return pa.decimal128(precision, scale)

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> str:
        if (token := self._peek()) is None:
            raise self._error("it ends too early")
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if (found := self._next()) != token:
            raise self._error(f"{token!r} expected, not {found!r}")

    def _error(self, words: str) -> ConfigurationError:
        return ConfigurationError(f"{self._source}: {words}; a schema is 'id BIGINT, name STRING'")


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without variants that Delta does not know (large strings, views, other units)."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, plain_type(each.type)) for each in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return TIMESTAMP if kind.tz else pa.timestamp("us")
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(each.name, plain_type(each.type)) for each in schema])


def infer_type(value: Any, depth: int = 0) -> pa.DataType:
    """The type of a JSON value; null if it does not tell (null, `[]`, `{}`)."""
    match value:
        case None:
            return pa.null()
        case bool():
            return pa.bool_()
        case int():
            return pa.int64() if value in _LONG_RANGE else pa.float64()
        case str():
            return pa.string()
        case dict() | list() if depth >= MAX_DEPTH:
            return pa.string()
        case list():
            element = pa.null()
            for each in value:
                element = merge_types(element, infer_type(each, depth + 1))
            return element if element == pa.null() else pa.list_(element)
        case dict():
            fields: dict[str, pa.DataType] = {}
            for key, each in value.items():
                name, found = column_name(key), infer_type(each, depth + 1)
                if found != pa.null():
                    fields[name] = merge_types(fields.get(name, pa.null()), found)
            return pa.struct(list(fields.items())) if fields else pa.null()
    return pa.float64()


def merge_types(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type for the values of both."""
    if one == other or other == pa.null():
        return one
    if one == pa.null():
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {each.name: each.type for each in one}
        for each in other:
            fields[each.name] = merge_types(fields.get(each.name, pa.null()), each.type)
        return pa.struct(list(fields.items()))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(merge_types(one.value_type, other.value_type))
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return pa.string()


def add_fields(known: pa.DataType, found: pa.DataType) -> pa.DataType:
    """`known` with the fields that only `found` has. Types of known fields stay.

    A name that differs from a known one in case only is not added.
    """
    if pa.types.is_list(known) and pa.types.is_list(found):
        return pa.list_(add_fields(known.value_type, found.value_type))
    if pa.types.is_map(known) and pa.types.is_struct(found):
        item = known.item_type
        for each in found:
            item = add_fields(item, each.type)
        return pa.map_(known.key_type, item)
    if not (pa.types.is_struct(known) and pa.types.is_struct(found)):
        return known
    fields = {each.name: each.type for each in known}
    lower = {name.lower() for name in fields}
    for each in found:
        if each.name in fields:
            fields[each.name] = add_fields(fields[each.name], each.type)
        elif each.name.lower() not in lower:
            fields[each.name] = _distinct(each.type)
            lower.add(each.name.lower())
    return pa.struct(list(fields.items()))


def _distinct(kind: pa.DataType) -> pa.DataType:
    """The type without fields whose names differ from another's in case only."""
    if pa.types.is_struct(kind):
        return add_fields(pa.struct([]), kind)
    return pa.list_(_distinct(kind.value_type)) if pa.types.is_list(kind) else kind


def count_fields(kind: pa.DataType) -> int:
    """The number of columns and fields of structs."""
    if pa.types.is_struct(kind):
        return sum(1 + count_fields(each.type) for each in kind)
    if pa.types.is_list(kind):
        return count_fields(kind.value_type)
    return 0
