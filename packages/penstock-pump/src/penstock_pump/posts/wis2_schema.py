"""Validation of WIS2 notifications, by WMO's WIS2 Notification Message standard, version 1.

The rules are those of the World Meteorological Organization's standard and of its JSON schema
(https://wmo-im.github.io/wis2-notification-message), restated here. The extra `wis2` installs the
validator of JSON schemas.
"""

from __future__ import annotations

import json
from typing import Any, Final

from penstock.core.errors import ConfigurationError

CONFORMS_TO: Final = "http://wis.wmo.int/spec/wnm/1/conf/core"
#: The longest message, and the largest content inside it.
MAX_MESSAGE_BYTES: Final = 8192
MAX_CONTENT_BYTES: Final = 4096
INTEGRITY_METHODS: Final = ("sha256", "sha384", "sha512", "sha3-256", "sha3-384", "sha3-512")
CANONICAL: Final = ("canonical", "update", "deletion")

_NUMBERS: Final = {"type": "array", "minItems": 2, "items": {"type": "number"}}
_TIME: Final = {"type": "string", "format": "date-time", "pattern": "Z$"}
SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "WIS2 notification message",
    "type": "object",
    "required": ["id", "conformsTo", "type", "geometry", "properties", "links"],
    "properties": {
        "id": {"type": "string", "format": "uuid"},
        "conformsTo": {
            "type": "array",
            "items": {"type": "string"},
            "contains": {"const": CONFORMS_TO},
        },
        "type": {"const": "Feature"},
        "geometry": {
            "oneOf": [
                {"type": "null"},
                {
                    "type": "object",
                    "required": ["type", "coordinates"],
                    "properties": {"type": {"const": "Point"}, "coordinates": _NUMBERS},
                },
                {
                    "type": "object",
                    "required": ["type", "coordinates"],
                    "properties": {
                        "type": {"const": "Polygon"},
                        "coordinates": {
                            "type": "array",
                            "items": {"type": "array", "minItems": 4, "items": _NUMBERS},
                        },
                    },
                },
            ]
        },
        "properties": {
            "type": "object",
            "required": ["data_id", "pubtime"],
            "properties": {
                "data_id": {"type": "string", "minLength": 1},
                "metadata_id": {"type": "string"},
                "pubtime": _TIME,
                "datetime": {"oneOf": [{"type": "null"}, _TIME]},
                "start_datetime": _TIME,
                "end_datetime": _TIME,
                "integrity": {
                    "type": "object",
                    "required": ["method", "value"],
                    "properties": {
                        "method": {"enum": list(INTEGRITY_METHODS)},
                        "value": {"type": "string"},
                    },
                },
                "content": {
                    "type": "object",
                    "required": ["encoding", "size", "value"],
                    "properties": {
                        "encoding": {"enum": ["utf-8", "base64", "gzip"]},
                        "size": {"type": "integer", "maximum": MAX_CONTENT_BYTES},
                        "value": {"type": "string"},
                    },
                },
            },
            "oneOf": [
                {"required": ["datetime"]},
                {"required": ["start_datetime", "end_datetime"]},
            ],
        },
        "links": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["href", "rel"],
                "properties": {
                    "href": {"type": "string"},
                    "rel": {"type": "string"},
                    "type": {"type": "string"},
                    "hreflang": {"type": "string"},
                    "title": {"type": "string"},
                    "length": {"type": "integer"},
                },
            },
            "contains": {"properties": {"rel": {"enum": list(CANONICAL)}}},
        },
    },
}


def notification_problems(body: bytes) -> list[str]:
    """What is wrong with a notification; empty if it conforms."""
    try:
        from jsonschema import Draft202012Validator, FormatChecker
    except ImportError:
        raise ConfigurationError(
            "the validation needs jsonschema: install penstock-pump[wis2]"
        ) from None
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        return [f"the message is not JSON: {error}"]
    validator = Draft202012Validator(SCHEMA, format_checker=FormatChecker())
    problems = [
        f"{'.'.join(map(str, error.absolute_path)) or 'message'}: {error.message[:200]}"
        for error in sorted(
            validator.iter_errors(given), key=lambda each: list(map(str, each.path))
        )
    ]
    if len(body) > MAX_MESSAGE_BYTES:
        problems.append(f"message: {len(body)} bytes are more than {MAX_MESSAGE_BYTES}")
    return problems
