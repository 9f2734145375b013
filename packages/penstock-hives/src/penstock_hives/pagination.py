"""Where a page of a list has ended, as a caller carries it to the next."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock_hives.errors import FieldError, InvalidRequest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CursorPage(Generic[T]):
    """A page, and where it has ended if there is more."""

    items: Sequence[T]
    next: str | None = None


def paginate(found: Sequence[T], limit: int, key: Callable[[T], Sequence[Any]]) -> CursorPage[T]:
    """Of what was looked up one more than wanted."""
    if len(found) <= limit:
        return CursorPage(found)
    items = found[:limit]
    return CursorPage(items, encode_cursor(key(items[-1])))


def encode_cursor(values: Sequence[Any]) -> str:
    text = json.dumps(list(values), separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None, *kinds: type) -> list[Any] | None:
    """What was packed, if it has these types; what was never packed is refused."""
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        values = json.loads(base64.b64decode(padded, b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        values = None
    if (
        not isinstance(values, list)
        or len(values) != len(kinds)
        or not all(_fits(value, kind) for value, kind in zip(values, kinds, strict=True))
    ):
        raise InvalidRequest(
            "no such page", [FieldError("cursor", "is not one that a page has given")]
        )
    return values


def _fits(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, int):
        return kind in (int, float) and abs(value) < 1 << 63
    return isinstance(value, kind) and not (isinstance(value, str) and "\0" in value)
