"""The headers of messages as text: a map of strings, whatever types the publisher used.

A string is itself. Anything else is its JSON text: `7`, `true`, `1.5`, `[1, 2]`, `{"a": null}`; in
there, and alone, a moment is ISO 8601 in quotes and bytes are base64 in quotes. A void is null.
A table that cannot be read gives no headers; the message is there all the same.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pamqp import decode

from penstock.pipeline.amqp.offsets import OFFSET

HEADERS: Final = pa.map_(pa.string(), pa.string())


def decode_headers(tables: Iterable[bytes | None]) -> pa.Array:
    """The column of these tables, each without the length before it."""
    return pa.array([_decoded(table) for table in tables], HEADERS)


def _decoded(table: bytes | None) -> list[tuple[str, str | None]] | None:
    if not table:
        return None
    try:
        _, found = decode.field_table(len(table).to_bytes(4, "big") + table)
    except (ValueError, OverflowError, OSError, RecursionError):
        return None
    # The offset is the broker's to say, and in a column of its own.
    pairs = [(name, text_of(value)) for name, value in found.items() if name != OFFSET]
    return pairs or None


def text_of(value: Any) -> str | None:
    match value:
        case None:
            return None
        case str():
            return value
        case bytes() | bytearray():
            # A long string that is no UTF-8 comes as bytes as well; neither is text.
            return json.dumps(_plain(value))
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: object) -> object:
    match value:
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case Decimal():
            return float(value) if value % 1 else int(value)
    return str(value)
