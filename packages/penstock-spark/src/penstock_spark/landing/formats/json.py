"""JSON: one object per message.

Whole batches are read by Arrow's JSON reader. It is lenient where a table must not be (several
objects, `NaN`, invalid UTF-8), so its result is checked, and bodies that it refuses or that have
new fields are decoded one by one.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from penstock_spark.landing.records import InvalidBody, NewColumns
from penstock_spark.landing.types import TIMESTAMP, column_name, infer_type

#: Types that Arrow's reader converts by the same rules as `RecordFitter`.
_READABLE: Final = frozenset(
    {
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64()),
        *(pa.string(), TIMESTAMP),
    }
)


#: Of Arrow's syntax errors.
_ERROR_ROW: Final = re.compile(r" in row (\d+)$")


@dataclass(frozen=True, slots=True)
class JsonFormat:
    given: pa.Schema | None = None
    is_text: bool = False
    is_columnar: bool = True

    @property
    def schema(self) -> pa.Schema | None:
        return self.given

    def records(self, body: bytes) -> list[dict[str, Any]]:
        try:
            found = json.loads(
                body.decode(),
                object_pairs_hook=_unique_keys,
                parse_constant=_no_constant,
                parse_float=_finite,
            )
        except UnicodeDecodeError as error:
            raise InvalidBody("invalid_json", f"not UTF-8: {error}") from None
        except RecursionError:
            raise InvalidBody("invalid_json", "nested too deeply") from None
        except ValueError as error:
            raise InvalidBody("invalid_json", str(error)) from None
        if not isinstance(found, dict):
            raise InvalidBody("invalid_json", f"an object expected, not {_kind(found)}")
        return [found]

    def infer(self, record: dict[str, Any]) -> pa.DataType:
        return infer_type(record)

    def read_columns(
        self, bodies: pa.Array, schema: pa.Schema, new_columns: NewColumns
    ) -> pa.StructArray | list[int]:
        record = pa.struct(list(schema))
        if not len(schema) or not _is_readable(record):
            return []
        try:
            bodies.cast(pa.string())
            found = _read(bodies.to_pylist(), record)
            found.validate()  # fields that it infers in some of the rows may be incomplete
        except pa.ArrowException as error:
            return _odd_rows(bodies, str(error))
        if found.column_names != ["b", "o"] or found["b"].null_count:
            return []
        if not np.array_equal(found["o"], np.arange(len(bodies))):
            return []
        read = found["b"].combine_chunks()
        if isinstance(read, pa.ChunkedArray):
            read = read.chunk(0)
        if not _is_finite(read):
            return []
        selected = _select(read, record, new_columns)
        return [] if selected is None else selected


def _odd_rows(bodies: pa.Array, error: str) -> list[int]:
    """The bodies that are no objects at first sight, or else the one that the error names."""
    objects = pc.and_(pc.starts_with(bodies, b"{"), pc.ends_with(bodies, b"}"))
    if odd := np.flatnonzero(~objects.to_numpy(zero_copy_only=False)).tolist():
        return [int(row) for row in odd]
    row = _ERROR_ROW.search(error)
    return [int(row[1])] if row is not None and int(row[1]) < len(bodies) else []


def _read(bodies: list[bytes], record: pa.StructType) -> pa.Table:
    """Each body in an object of its own, with its number: no other text can take its place."""
    lines = b"".join([b'{"b":%b,"o":%d}\n' % (body, row) for row, body in enumerate(bodies)])
    return pj.read_json(
        pa.BufferReader(lines),
        pj.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        pj.ParseOptions(
            explicit_schema=pa.schema([("b", record), ("o", pa.int64())]),
            unexpected_field_behavior="infer",
        ),
    )


def _is_readable(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_readable(each.type) for each in kind)
    if pa.types.is_list(kind):
        return _is_readable(kind.value_type)
    return kind in _READABLE


def _is_finite(found: pa.Array) -> bool:
    """Whether no number is `NaN` or infinite, which JSON does not have."""
    if pa.types.is_struct(found.type):
        return all(_is_finite(found.field(index)) for index in range(found.type.num_fields))
    if pa.types.is_list(found.type):
        return _is_finite(found.values)
    if pa.types.is_floating(found.type):
        return pc.all(pc.is_finite(found), min_count=0).as_py() is not False
    return True


def _select(found: pa.Array, wanted: pa.DataType, new_columns: NewColumns) -> pa.Array | None:
    """The wanted fields; None if there are others with a value that count."""
    if found.type == wanted:
        return found
    if pa.types.is_list(wanted):
        values = _select(found.values, wanted.value_type, new_columns)
        if values is None:
            return None
        mask = found.is_null() if found.null_count else None
        return pa.ListArray.from_arrays(found.offsets, values, wanted, mask=mask)
    names = {each.name for each in wanted}
    lower = {name.lower() for name in names}
    for each in found.type:
        if each.name in names or pa.types.is_null(each.type):
            continue
        if column_name(each.name).lower() in lower or new_columns is not NewColumns.IGNORE:
            return None
    arrays = []
    for each in wanted:
        column = _select(found.field(each.name), each.type, new_columns)
        if column is None:
            return None
        arrays.append(column)
    mask = found.is_null() if found.null_count else None
    return pa.StructArray.from_arrays(arrays, fields=list(wanted), mask=mask)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        again = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {again!r} occurs twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float | Decimal:
    """The number; as a decimal if it has more digits than a double."""
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"number {text[:20]} is out of range")
    if len(text) > 15:
        exact = Decimal(text)
        return exact if exact != Decimal(repr(number)) else number
    return number


def _kind(value: Any) -> str:
    match value:
        case list():
            return "an array"
        case str():
            return "a string"
        case None:
            return "null"
        case bool():
            return "a boolean"
    return "a number"
