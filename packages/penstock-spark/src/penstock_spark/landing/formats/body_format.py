"""The interface of a format, and the two formats without structure: text and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from penstock_spark.landing.records import InvalidBody, NewColumns


class BodyFormat(Protocol):
    """Decodes bodies. Picklable, and the same on every worker."""

    @property
    def schema(self) -> pa.Schema | None:
        """The columns that the format itself defines; None if they are inferred."""

    @property
    def is_text(self) -> bool:
        """Whether values are text and become what the column is, as in CSV."""

    @property
    def is_columnar(self) -> bool:
        """Whether `read_columns` is worth a try."""

    def records(self, body: bytes) -> list[dict[str, Any]]:
        """The rows of a message; raises `InvalidBody`."""

    def infer(self, record: dict[str, Any]) -> pa.DataType:
        """The type of a record of `records`."""

    def read_columns(
        self, bodies: pa.Array, schema: pa.Schema, new_columns: NewColumns
    ) -> pa.StructArray | list[int]:
        """All bodies at once, one row each, the same as by `records` and `RecordFitter`.

        If some of them need a closer look: their numbers, as far as they are known.
        """


TEXT_COLUMN: Final = "text"
BODY_COLUMN: Final = "body"


@dataclass(frozen=True, slots=True)
class TextFormat:
    """UTF-8 text in one column."""

    is_text: bool = False
    is_columnar: bool = True

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(TEXT_COLUMN, pa.string())])

    def records(self, body: bytes) -> list[dict[str, Any]]:
        try:
            return [{TEXT_COLUMN: body.decode()}]
        except UnicodeDecodeError as error:
            raise InvalidBody("invalid_text", f"not UTF-8: {error}") from None

    def infer(self, record: dict[str, Any]) -> pa.DataType:
        return pa.struct(list(self.schema))

    def read_columns(
        self, bodies: pa.Array, schema: pa.Schema, new_columns: NewColumns
    ) -> pa.StructArray | list[int]:
        if schema != self.schema:
            return []
        try:
            return pa.StructArray.from_arrays([bodies.cast(pa.string())], fields=list(schema))
        except pa.ArrowInvalid:
            return []


@dataclass(frozen=True, slots=True)
class BytesFormat:
    """The body as it is."""

    is_text: bool = False
    is_columnar: bool = True

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(BODY_COLUMN, pa.binary())])

    def records(self, body: bytes) -> list[dict[str, Any]]:
        return [{BODY_COLUMN: body}]

    def infer(self, record: dict[str, Any]) -> pa.DataType:
        return pa.struct(list(self.schema))

    def read_columns(
        self, bodies: pa.Array, schema: pa.Schema, new_columns: NewColumns
    ) -> pa.StructArray | list[int]:
        if schema != self.schema:
            return []
        return pa.StructArray.from_arrays([bodies], fields=list(schema))
