"""Protobuf: a message of a type in a descriptor set (`protoc --descriptor_set_out=FILE`).

Fields that track presence are null if they are not set; others have their default. An enum is the
name of its value, or the number of one that the descriptor does not know. `Timestamp` and the
wrappers are what they stand for; `Duration`, `Struct`, `Any` and the like are their JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any, Final

import pyarrow as pa

from penstock.core.errors import ConfigurationError
from penstock_spark.landing.records import InvalidBody, NewColumns
from penstock_spark.landing.types import TIMESTAMP

_TYPES: Final[dict[str, pa.DataType]] = {
    "INT32": pa.int32(),
    "INT64": pa.int64(),
    "UINT32": pa.int64(),
    "UINT64": pa.decimal128(20, 0),
    "DOUBLE": pa.float64(),
    "FLOAT": pa.float32(),
    "BOOL": pa.bool_(),
    "ENUM": pa.string(),
}
_WRAPPERS: Final = tuple(
    f"google.protobuf.{each}Value"
    for each in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
_JSON_MESSAGES: Final = tuple(
    f"google.protobuf.{each}"
    for each in ("Any", "Duration", "FieldMask", "ListValue", "Struct", "Value", "Empty")
)
_TIMESTAMP: Final = "google.protobuf.Timestamp"

Getter = Callable[[Any], Any]


@dataclass(frozen=True)
class ProtobufFormat:
    descriptors: bytes  #: a serialized FileDescriptorSet
    message: str  #: the full name of the type
    is_text: bool = False
    is_columnar: bool = False

    def __post_init__(self) -> None:
        _ = self.schema

    @cached_property
    def schema(self) -> pa.Schema:
        descriptor = _message_class(self.descriptors, self.message).DESCRIPTOR
        return pa.schema(list(_struct(descriptor, ())))

    def records(self, body: bytes) -> list[dict[str, Any]]:
        from google.protobuf.message import DecodeError

        decoded = _message_class(self.descriptors, self.message)()
        try:
            decoded.ParseFromString(body)
            return [_record(decoded)]
        except DecodeError as error:
            raise InvalidBody("invalid_protobuf", str(error)) from None
        except (ValueError, OverflowError, TypeError, RecursionError) as error:
            # A Timestamp after the year 9999, an Any of an unknown type.
            raise InvalidBody("does_not_fit", str(error)) from None

    def infer(self, record: dict[str, Any]) -> pa.DataType:
        return pa.struct(list(self.schema))

    def read_columns(
        self, bodies: pa.Array, schema: pa.Schema, new_columns: NewColumns
    ) -> pa.StructArray | list[int]:
        return []


@lru_cache(maxsize=16)
def _message_class(descriptors: bytes, name: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(descriptors)
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        names = sorted(
            f"{file.package}.{each.name}".lstrip(".")
            for file in files.file
            for each in file.message_type
        )
        if not names:
            raise ConfigurationError(
                "the descriptor set has no messages; make it with "
                "protoc --include_imports --descriptor_set_out=FILE"
            )
        if not name and len(names) == 1:
            name = names[0]
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        known = ", ".join(names[:20])
        raise ConfigurationError(
            f"message {name!r} is not in the descriptor set; it has {known}"
        ) from None
    except (DecodeError, TypeError) as error:
        raise ConfigurationError(
            f"the descriptor set is not valid ({error}); make it with "
            "protoc --include_imports --descriptor_set_out=FILE"
        ) from error


def _struct(descriptor: Any, within: tuple[str, ...]) -> pa.DataType:
    name = descriptor.full_name
    if name in within:
        raise ConfigurationError(f"message {name} contains itself, and a table has no such column")
    fields = [(each.name, _field_type(each, (*within, name))) for each in descriptor.fields]
    if not fields:
        return pa.string()  # as JSON text
    return pa.struct(fields)


def _field_type(field: Any, within: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        value = _single_type(field.message_type.fields_by_name["value"], within)
        return pa.map_(pa.string(), value)
    kind = _single_type(field, within)
    return pa.list_(kind) if field.is_repeated else kind


def _single_type(field: Any, within: tuple[str, ...]) -> pa.DataType:
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return TIMESTAMP
        if name in _WRAPPERS:
            return _single_type(field.message_type.fields_by_name["value"], within)
        return pa.string() if name in _JSON_MESSAGES else _struct(field.message_type, within)
    if field.cpp_type == field.CPPTYPE_STRING:
        return pa.binary() if field.type == field.TYPE_BYTES else pa.string()
    return _TYPES[_cpp_name(field)]


def _cpp_name(field: Any) -> str:
    return next(name for name in _TYPES if getattr(field, f"CPPTYPE_{name}") == field.cpp_type)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _record(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if _is_map(field):
            single = field.message_type.fields_by_name["value"]
            found[field.name] = {_key(key): _value(single, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [_value(field, each) for each in value]
        else:
            found[field.name] = _value(field, value)
    return found


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            from datetime import UTC

            return value.ToDatetime(tzinfo=UTC)
        if name in _WRAPPERS:
            return _value(field.message_type.fields_by_name["value"], value.value)
        if name in _JSON_MESSAGES or not field.message_type.fields:
            from google.protobuf.json_format import MessageToDict

            as_json = MessageToDict(value)
            return as_json if isinstance(as_json, str) else json.dumps(as_json)
        return _record(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.cpp_type == field.CPPTYPE_UINT64:
        return Decimal(value)
    return value
