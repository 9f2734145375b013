"""CSV: one or more records per message, separated by line ends.

The columns are given (`--schema`), or named by the header of each message (`--csv-header`). Empty
values are null. A quoted value may contain delimiters, quotes and line ends.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from io import StringIO
from typing import Any, Final

import pyarrow as pa

from penstock.core.errors import ConfigurationError
from penstock_spark.landing.records import InvalidBody, NewColumns
from penstock_spark.landing.types import column_name

#: With leading zeros it is a code, not a number.
_INTEGER: Final = re.compile(r"[+-]?(0|[1-9]\d{0,17})", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?", re.ASCII)
_MAX_COLUMNS: Final = 10_000


@dataclass(frozen=True, slots=True)
class CsvFormat:
    given: pa.Schema | None = None
    header: bool = False
    delimiter: str = ","
    is_text: bool = True
    is_columnar: bool = False

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise ConfigurationError(
                f"delimiter {self.delimiter!r}: should be one character, and no quote or line end"
            )
        if self.given is None and not self.header:
            raise ConfigurationError(
                "format csv: the columns have no names; give --schema 'id BIGINT, name STRING', or "
                "--csv-header if each message begins with a header line"
            )

    @property
    def schema(self) -> pa.Schema | None:
        return self.given

    def records(self, body: bytes) -> list[dict[str, Any]]:
        try:
            text = body.decode("utf-8-sig")
            lines = csv.reader(StringIO(text, newline=""), delimiter=self.delimiter, strict=True)
            rows = [row for row in lines if row]
        except UnicodeDecodeError as error:
            raise InvalidBody("invalid_csv", f"not UTF-8: {error}") from None
        except csv.Error as error:
            raise InvalidBody("invalid_csv", str(error)) from None
        names = self._names(rows)
        if not rows:
            raise InvalidBody("invalid_csv", "no record")
        found = []
        for number, row in enumerate(rows, 1):
            if len(row) != len(names):
                raise InvalidBody(
                    "invalid_csv", f"record {number} has {len(row)} values for {len(names)} columns"
                )
            found.append({name: value or None for name, value in zip(names, row, strict=True)})
        return found

    def infer(self, record: dict[str, Any]) -> pa.DataType:
        kinds = {column_name(name): _infer(value) for name, value in record.items()}
        return pa.struct([(name, kind) for name, kind in kinds.items() if kind != pa.null()])

    def read_columns(
        self, bodies: pa.Array, schema: pa.Schema, new_columns: NewColumns
    ) -> pa.StructArray | list[int]:
        return []

    def _names(self, rows: list[list[str]]) -> list[str]:
        """The names of the columns; takes the header from the rows."""
        if not self.header:
            assert self.given is not None
            return list(self.given.names)
        if not rows:
            raise InvalidBody("invalid_csv", "no header")
        names = [name.strip() for name in rows.pop(0)]
        if len(set(names)) < len(names) or not all(names):
            raise InvalidBody("invalid_csv", "the header has a column without name, or one twice")
        if len(names) > _MAX_COLUMNS:
            raise InvalidBody("invalid_csv", f"the header has {len(names)} columns")
        return names


def _infer(value: str | None) -> pa.DataType:
    if value is None:
        return pa.null()
    if _INTEGER.fullmatch(value):
        return pa.int64()
    if _NUMBER.fullmatch(value):
        return pa.float64()
    return pa.bool_() if value.lower() in ("true", "false") else pa.string()
