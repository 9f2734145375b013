"""Cursors of paged lists: the sort key of the last item, encoded as an opaque string."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock_hives.errors import InvalidRequest, invalid_field

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CursorPage(Generic[T]):
    items: Sequence[T]
    next: str | None = None  #: None: the last page


def paginate(found: Sequence[T], limit: int, key: Callable[[T], Sequence[Any]]) -> CursorPage[T]:
    """A page of `found`, which has one item more than the limit if there is a next page."""
    if len(found) <= limit:
        return CursorPage(found)
    items = found[:limit]
    return CursorPage(items, encode_cursor(key(items[-1])))


def encode_cursor(values: Sequence[Any]) -> str:
    text = json.dumps(list(values), separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None, *kinds: type) -> list[Any] | None:
    """The values, which must have these types."""
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
        raise invalid_cursor()
    return values


def decode_id(cursor: str | None) -> int | None:
    """The cursor of a list that is sorted by id."""
    values = decode_cursor(cursor, int)
    return None if values is None else values[0]


def invalid_cursor() -> InvalidRequest:
    return invalid_field("cursor", "must be the `next` of a page")


def _fits(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, int):
        return kind in (int, float) and abs(value) < 1 << 63
    return isinstance(value, kind) and not (isinstance(value, str) and "\0" in value)
