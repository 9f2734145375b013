"""Fits decoded records to the columns of a table.

A value fits if the column can hold it without loss: an integer fits DOUBLE, `2.0` fits BIGINT, ISO
8601 text fits TIMESTAMP and DATE, base64 text fits BINARY. A STRING holds every value: what is not
text is stored as JSON text. A missing field is null. Anything else is an `Unfit` with the field and
the reason, and its message goes to the dead letters.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal, Inexact, InvalidOperation
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from penstock.core.errors import PreconditionFailed
from penstock_spark.landing.types import column_name, sql_type

_SHOWN: Final = 40
_EXACT: Final = Context(prec=38, traps=[Inexact, InvalidOperation])

Converter = Callable[[Any], Any]


class NewColumns(StrEnum):
    ADD = "add"  #: the table gets the column
    IGNORE = "ignore"  #: the field is dropped
    REJECT = "reject"  #: the message is a dead letter


class InvalidBody(Exception):
    """A body that cannot be decoded, or a record that does not fit. Becomes a dead letter."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Unfit(Exception):
    """A value that a column cannot hold."""

    def __init__(self, words: str, reason: str = "does_not_fit") -> None:
        super().__init__(words)
        self.path: list[str] = []
        self.reason = reason

    def __str__(self) -> str:
        where = f"field {'.'.join(reversed(self.path))!r}: " if self.path else ""
        return where + str(self.args[0])


class RecordFitter:
    """Fits records to a schema; notes whether they have fields that it lacks."""

    def __init__(
        self, schema: pa.Schema, new_columns: NewColumns, reserved: frozenset[str], *, text: bool
    ) -> None:
        #: Whether a record since the last look had a field that the schema lacks.
        self.has_new_fields = False
        self.schema = schema
        self._new_columns = new_columns
        self._reserved = reserved
        self._text = text  # numbers and booleans are text, as in CSV
        self._fit = self._struct(pa.struct(list(schema)), top=True)

    def fit(self, record: Mapping[str, Any]) -> dict[str, Any]:
        try:
            fitted: dict[str, Any] = self._fit(record)
        except Unfit as error:
            raise InvalidBody(error.reason, str(error)) from None
        except RecursionError:
            raise InvalidBody("does_not_fit", "nested too deeply") from None
        return fitted

    def _converter(self, kind: pa.DataType) -> Converter:
        if pa.types.is_struct(kind):
            return self._struct(kind)
        if pa.types.is_list(kind):
            return self._list(kind)
        if pa.types.is_map(kind):
            return self._map(kind)
        if pa.types.is_decimal(kind):
            return _decimal(kind)
        if pa.types.is_integer(kind):
            return _integer(kind, self._text)
        if self._text and (found := _CONVERTERS_FROM_TEXT.get(kind)) is not None:
            return found
        if (found := _CONVERTERS.get(kind)) is None:
            raise PreconditionFailed(f"a column of type {kind} cannot be filled from messages")
        return found

    def _struct(self, kind: pa.StructType, top: bool = False) -> Converter:
        converters = {each.name: self._converter(each.type) for each in kind}
        lower = {name.lower(): name for name in converters}
        reserved = self._reserved if top else frozenset()
        words = sql_type(kind)

        def convert(value: Any) -> dict[str, Any]:
            if not isinstance(value, dict):
                raise _unfit(value, words)
            found: dict[str, Any] = {}
            for key, each in value.items():
                name = key if key in converters else column_name(key)
                if (converter := converters.get(name)) is None:
                    if each is not None:
                        self._unknown(key, name, lower, reserved)
                    continue
                if name in found:
                    error = Unfit(f"two keys for column {name!r}")
                    error.path.append(key)
                    raise error
                if each is None:
                    found[name] = None
                    continue
                try:
                    found[name] = converter(each)
                except Unfit as error:
                    error.path.append(key)
                    raise
            return found

        return convert

    def _unknown(
        self, key: str, name: str, lower: Mapping[str, str], reserved: frozenset[str]
    ) -> None:
        if (known := lower.get(name.lower())) is not None:
            problem = Unfit(f"differs from column {known!r} in case only", "name_in_use")
        elif self._new_columns is NewColumns.IGNORE:
            return
        elif name.lower() in reserved:
            problem = Unfit("the name is that of another column", "reserved_name")
        elif self._new_columns is NewColumns.REJECT:
            problem = Unfit("the table has no such column", "unknown_field")
        else:
            self.has_new_fields = True
            return
        problem.path.append(key)
        raise problem

    def _list(self, kind: pa.ListType) -> Converter:
        converter, words = self._converter(kind.value_type), sql_type(kind)

        def convert(value: Any) -> list[Any]:
            if not isinstance(value, list):
                raise _unfit(value, words)
            return [None if each is None else converter(each) for each in value]

        return convert

    def _map(self, kind: pa.MapType) -> Converter:
        converter, words = self._converter(kind.item_type), sql_type(kind)

        def convert(value: Any) -> list[tuple[str, Any]]:
            if not isinstance(value, dict):
                raise _unfit(value, words)
            return [
                (_string(key), None if each is None else converter(each))
                for key, each in value.items()
            ]

        return convert


def _unfit(value: Any, words: str) -> Unfit:
    shown = (
        json.dumps(value, default=str, ensure_ascii=True)
        if _is_flat(value)
        else ("an array" if isinstance(value, list) else "an object")
    )
    return Unfit(f"{shown[:_SHOWN]}{'…' if len(shown) > _SHOWN else ''} is not {words}")


def _is_flat(value: Any) -> bool:
    return not isinstance(value, list | dict)


def _integer(kind: pa.DataType, text: bool) -> Converter:
    words = sql_type(kind)
    allowed = range(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1))

    def convert(value: Any) -> int:
        if text and isinstance(value, str):
            value = _number_of(value, words)
        if type(value) is not int:
            if not isinstance(value, float | Decimal) or not math.isfinite(value):
                raise _unfit(value, words)
            if not -(2.0**63) <= value < 2.0**63 or value % 1:
                raise _unfit(value, words)
            value = int(value)
        if value not in allowed:
            raise _unfit(value, words)
        return int(value)

    return convert


def _number_of(text: str, words: str) -> int | float:
    stripped = text.strip()
    if "_" not in stripped and len(stripped) <= 400:
        for parse in (int, float):
            try:
                return parse(stripped)
            except ValueError:
                continue
    raise _unfit(text, words)


def _decimal(kind: pa.Decimal128Type) -> Converter:
    words, step = sql_type(kind), Decimal(1).scaleb(-kind.scale)
    limit = Decimal(10) ** (kind.precision - kind.scale)

    def convert(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
            raise _unfit(value, words)
        try:
            number = Decimal(str(value) if isinstance(value, float) else value)
            exact = number.quantize(step, context=_EXACT) if number.is_finite() else number
        except (InvalidOperation, Inexact):
            raise _unfit(value, words) from None
        if not exact.is_finite() or abs(exact) >= limit:
            raise _unfit(value, words)
        return exact

    return convert


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _unfit(value, "BOOLEAN")
    return value


def _boolean_of_text(value: Any) -> bool:
    match value.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise _unfit(value, "BOOLEAN")


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _unfit(value, "DOUBLE")
    try:
        return float(value)
    except OverflowError:
        raise _unfit(value, "DOUBLE") from None


def _double_of_text(value: Any) -> float:
    return _double(_number_of(value, "DOUBLE"))


def _float(value: Any) -> float:
    number = _double(value)
    if math.isfinite(number) and abs(number) > 3.4028235e38:
        raise _unfit(value, "FLOAT")
    return number


def _float_of_text(value: Any) -> float:
    return _float(_number_of(value, "FLOAT"))


def _string(value: Any) -> str:
    if not isinstance(value, str):
        value = json_text(value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Unfit("half of a surrogate pair is no text") from None
    return str(value)


def json_text(value: Any) -> str:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
    return json.dumps(value, default=_json_default, ensure_ascii=False)


def _json_default(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return json_text(value) if isinstance(value, bytes | date | time) else str(value)


def _binary(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise _unfit(value, "BINARY")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise _unfit(value, "BINARY in base64") from None


def _date(value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        if isinstance(value, str) and len(value) == 10:
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise _unfit(value, "DATE, such as 2026-01-31")


def _timestamp(value: Any) -> datetime:
    found = _datetime(value)
    try:
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except OverflowError:
        raise _unfit(value, "TIMESTAMP") from None


def _timestamp_ntz(value: Any) -> datetime:
    found = _datetime(value)
    if found.tzinfo is not None:
        raise _unfit(value, "TIMESTAMP_NTZ, which has no zone")
    return found


def _datetime(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        if isinstance(value, str) and len(value) >= 10 and value[4:5] == "-":
            return datetime.fromisoformat(value)
    except ValueError:
        pass
    raise _unfit(value, "TIMESTAMP in ISO 8601, such as 2026-01-31T12:00:00Z")


_CONVERTERS: Final[dict[pa.DataType, Converter]] = {
    pa.bool_(): _boolean,
    pa.float32(): _float,
    pa.float64(): _double,
    pa.string(): _string,
    pa.binary(): _binary,
    pa.date32(): _date,
    pa.timestamp("us", tz="UTC"): _timestamp,
    pa.timestamp("us"): _timestamp_ntz,
}
_CONVERTERS_FROM_TEXT: Final[dict[pa.DataType, Converter]] = {
    pa.bool_(): _boolean_of_text,
    pa.float32(): _float_of_text,
    pa.float64(): _double_of_text,
}
