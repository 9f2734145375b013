"""Schemas of messages: JSON Schema, Avro and Protobuf, checked when a message is published.

A schema is a runtime parameter of component `schema`. An exchange names it by the argument
`x-schema` or the policy setting `schema`. Its `keys` limit it to routing keys. The libraries are
the extra `schemas`, loaded with the first schema of their kind.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
from collections.abc import Callable
from typing import Any, Final

from penstock.broker.contract import Message
from penstock.core.errors import ConfigurationError, PreconditionFailed, SchemaViolation
from penstock.destinations.topic_trie import TopicTrie

KINDS: Final = ("json", "avro", "protobuf")
REJECT: Final = "reject"
DEAD_LETTER: Final = "dead-letter"
#: A larger body is refused: it would have to be in memory as a whole.
MAX_BODY_BYTES: Final = 16 << 20
_FIELDS: Final = frozenset(
    {"type", "schema", "message", "keys", "on-invalid", "dead-letter-exchange"}
)

#: Raises `ValueError` with the reason.
BodyCheck = Callable[[bytes], None]


class MessageSchema:
    def __init__(self, name: str, value: Any) -> None:
        """Raises `PreconditionFailed` if the definition is invalid."""
        self.name = name
        if not isinstance(value, dict):
            raise PreconditionFailed("Validation failed\n\na schema is an object\n")
        problems = list(_problems(value))
        if problems:
            raise PreconditionFailed("Validation failed\n\n" + "\n".join(problems) + "\n")
        self.dead_letter_exchange: str | None = None
        if value.get("on-invalid", REJECT) == DEAD_LETTER:
            self.dead_letter_exchange = value["dead-letter-exchange"]
        keys = value.get("keys") or ["#"]
        self._keys: TopicTrie[bool] = TopicTrie()
        for key in keys:
            self._keys.add(key.encode(), True)
        try:
            self._check = _COMPILERS[value["type"]](value)
        except ModuleNotFoundError as missing:
            raise ConfigurationError(
                f"schemas of type {value['type']} need {missing.name}: "
                "pip install 'penstock[schemas]'"
            ) from None
        except PreconditionFailed:
            raise
        except Exception as error:  # of three libraries
            reason = f"schema: {type(error).__name__}: {error}"
            raise PreconditionFailed(f"Validation failed\n\n{reason}\n") from error

    def check(self, message: Message) -> None:
        """Raises `SchemaViolation` unless the body conforms, or the key is not covered."""
        if not self._keys.match(message.route[message.route[0] + 2 :]):
            return
        if message.size > MAX_BODY_BYTES:
            raise self._violation(f"a body of {message.size} bytes is too large to be checked")
        body = message.body if message.spool is None else message.spool.read()
        try:
            self._check(body)
        except ValueError as error:
            raise self._violation(str(error)) from None
        except RecursionError:
            raise self._violation("nested too deeply") from None

    def _violation(self, reason: str) -> SchemaViolation:
        return SchemaViolation(f"message does not conform to schema '{self.name}': {reason[:500]}")


def _problems(value: dict[str, Any]) -> list[str]:
    problems = []
    if value.get("type") not in KINDS:
        problems.append(f"type should be one of {', '.join(KINDS)}")
    if "schema" not in value:
        problems.append("schema is missing")
    keys = value.get("keys", [])
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        problems.append("keys should be a list of routing key patterns")
    action = value.get("on-invalid", REJECT)
    if action not in (REJECT, DEAD_LETTER):
        problems.append(f"on-invalid should be {REJECT} or {DEAD_LETTER}")
    has_exchange = isinstance(value.get("dead-letter-exchange"), str)
    if has_exchange != (action == DEAD_LETTER):
        problems.append("dead-letter-exchange belongs to on-invalid: dead-letter")
    if value.get("type") == "protobuf" and not isinstance(value.get("message"), str):
        problems.append("message, the full name of the message type, is missing")
    problems += [f"unrecognised term {key!r}" for key in sorted(value.keys() - _FIELDS)]
    return problems


def _parsed(schema: Any) -> Any:
    """A schema may be JSON, or a string that contains it."""
    return json.loads(schema) if isinstance(schema, str) else schema


def _compile_json(value: dict[str, Any]) -> BodyCheck:
    from jsonschema.exceptions import best_match
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry

    schema = _parsed(value["schema"])
    kind = validator_for(schema, default=Draft202012Validator)
    kind.check_schema(schema)
    validator = kind(schema, registry=Registry())  # fetches nothing

    def check(body: bytes) -> None:
        error = best_match(validator.iter_errors(json.loads(body)))
        if error is not None:
            raise ValueError(f"{error.json_path}: {error.message}")

    return check


def _compile_avro(value: dict[str, Any]) -> BodyCheck:
    from fastavro import parse_schema, schemaless_reader

    schema: Any = parse_schema(_parsed(value["schema"]))

    def check(body: bytes) -> None:
        stream = io.BytesIO(body)
        try:
            schemaless_reader(stream, schema, None)
        except Exception as error:  # EOFError, IndexError, UnicodeDecodeError …
            raise ValueError(f"not a value of the Avro schema: {error!r}") from None
        if stream.tell() != len(body):
            raise ValueError(f"{len(body) - stream.tell()} bytes after the Avro value")

    return check


def _compile_protobuf(value: dict[str, Any]) -> BodyCheck:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields
    from google.protobuf.message import DecodeError

    try:
        encoded = base64.b64decode(value["schema"], validate=True)
    except (TypeError, binascii.Error):
        raise PreconditionFailed(
            "Validation failed\n\nschema should be a FileDescriptorSet in base64 "
            "(protoc --include_imports --descriptor_set_out)\n"
        ) from None
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(encoded).file:
        pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(value["message"]))

    def check(body: bytes) -> None:
        found = kind()
        try:
            found.ParseFromString(body)
        except DecodeError as error:
            raise ValueError(f"not a {value['message']}: {error}") from None
        unknown = [each.field_number for each in unknown_fields.UnknownFieldSet(found)]
        if unknown:
            raise ValueError(f"unknown field {unknown[0]} in {value['message']}")
        if not found.IsInitialized():
            raise ValueError(f"missing fields: {', '.join(found.FindInitializationErrors())}")

    return check


_COMPILERS: Final[dict[str, Callable[[dict[str, Any]], BodyCheck]]] = {
    "json": _compile_json,
    "avro": _compile_avro,
    "protobuf": _compile_protobuf,
}
