"""Avro: a datum of a given schema (`--schema orders.avsc`), alone or in one of Avro's envelopes.

A body is a single-object encoding if it begins with the marker and the fingerprint of the schema, a
container file if it begins with its marker (its own schema is resolved to the given one; one
message may have many rows), and otherwise a datum without any header. A datum has to use all bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from io import BytesIO
from typing import Any, Final

import pyarrow as pa

from penstock.core.errors import ConfigurationError
from penstock_spark.landing.records import InvalidBody, NewColumns
from penstock_spark.landing.types import TIMESTAMP

_SINGLE_OBJECT: Final = b"\xc3\x01"
_CONTAINER: Final = b"Obj\x01"
_FINGERPRINT_BYTES: Final = 8

_PRIMITIVE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
#: A time of day has no type in Delta; it is ISO 8601 text.
_LOGICAL: Final[dict[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.string(),
    ("long", "time-micros"): pa.string(),
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
    ("fixed", "uuid"): pa.string(),
}


@dataclass(frozen=True)
class AvroFormat:
    definition: str  #: the schema as JSON
    is_text: bool = False
    is_columnar: bool = False

    def __post_init__(self) -> None:
        try:
            parsed = _parsed(self.definition)
        except Exception as error:
            raise ConfigurationError(f"the Avro schema is not valid: {error}") from error
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise ConfigurationError("the Avro schema should be a record: its fields are columns")
        _ = self.schema

    @cached_property
    def schema(self) -> pa.Schema:
        record = _SchemaReader(_parsed(self.definition)).record
        return pa.schema(list(record))

    @cached_property
    def _single_object_header(self) -> bytes:
        import fastavro

        text = fastavro.schema.to_parsing_canonical_form(json.loads(self.definition))
        digest = fastavro.schema.fingerprint(text, "CRC-64-AVRO")
        return _SINGLE_OBJECT + bytes.fromhex(digest)

    def records(self, body: bytes) -> list[dict[str, Any]]:
        import fastavro

        schema = _parsed(self.definition)
        try:
            if body.startswith(_CONTAINER):
                return list(fastavro.reader(BytesIO(body), reader_schema=schema))  # type: ignore[arg-type]
            skip = 0
            if body.startswith(self._single_object_header):
                skip = len(self._single_object_header)
            stream = BytesIO(body)
            stream.seek(skip)
            found = fastavro.schemaless_reader(stream, schema, None)
            left = len(body) - stream.tell()
        except RecursionError:
            raise InvalidBody("invalid_avro", "nested too deeply") from None
        except MemoryError:
            raise InvalidBody("invalid_avro", "a length exceeds the memory") from None
        except Exception as error:  # of many classes, down to IndexError and OverflowError
            words = str(error) or type(error).__name__
            raise InvalidBody("invalid_avro", self._explained(body, words)) from None
        if left:
            words = f"{left} bytes after the datum"
            raise InvalidBody("invalid_avro", self._explained(body, words))
        if not isinstance(found, dict):
            raise InvalidBody("invalid_avro", "not a record")
        return [found]

    def infer(self, record: dict[str, Any]) -> pa.DataType:
        return pa.struct(list(self.schema))

    def read_columns(
        self, bodies: pa.Array, schema: pa.Schema, new_columns: NewColumns
    ) -> pa.StructArray | list[int]:
        return []

    def _explained(self, body: bytes, words: str) -> str:
        header = len(_SINGLE_OBJECT) + _FINGERPRINT_BYTES
        if body.startswith(_SINGLE_OBJECT) and not body.startswith(self._single_object_header):
            found = body[len(_SINGLE_OBJECT) : header].hex()
            return f"{words}; if this is a single object, its schema is another one ({found})"
        return words


@lru_cache(maxsize=16)
def _parsed(definition: str) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(definition))


class _SchemaReader:
    """The columns of a record schema."""

    def __init__(self, schema: Any) -> None:
        self._named: dict[str, Any] = {}
        self._open: set[str] = set()
        self.record = self._type(schema)

    def _type(self, schema: Any) -> pa.DataType:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            if schema in _PRIMITIVE:
                return _PRIMITIVE[schema]
            return self._type(self._named[schema])
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self._type(kind)
        if (name := schema.get("name")) is not None and kind in ("record", "enum", "fixed"):
            self._named[name] = schema
        if (logical := schema.get("logicalType")) is not None:
            if logical == "decimal" and schema["precision"] <= 38:
                return pa.decimal128(schema["precision"], schema.get("scale", 0))
            if (found := _LOGICAL.get((kind, logical))) is not None:
                return found
        match kind:
            case "record" | "error":
                return self._record(schema)
            case "array":
                return pa.list_(self._type(schema["items"]))
            case "map":
                return pa.map_(pa.string(), self._type(schema["values"]))
        return _PRIMITIVE[kind] if kind in _PRIMITIVE else self._type(kind)

    def _record(self, schema: dict[str, Any]) -> pa.DataType:
        name = schema["name"]
        if name in self._open:
            raise ConfigurationError(
                f"the Avro schema: record {name} contains itself, and a table has no such column"
            )
        self._open.add(name)
        fields = [(each["name"], self._type(each["type"])) for each in schema["fields"]]
        self._open.remove(name)
        if not fields:
            raise ConfigurationError(f"the Avro schema: record {name} has no fields")
        return pa.struct(fields)

    def _union(self, branches: list[Any]) -> pa.DataType:
        kinds = [self._type(each) for each in branches if each != "null"]
        if not kinds:
            raise ConfigurationError("the Avro schema: a union with nothing but null")
        if all(kind == kinds[0] for kind in kinds):
            return kinds[0]
        if all(pa.types.is_integer(kind) for kind in kinds):
            return pa.int64()
        if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds):
            return pa.float64()
        return pa.string()  # as JSON text
