"""The filter of calls that browse and move messages: routing key, headers, time, text, content.

A content expression has predicates of the [content language](content). Its attributes are the
message's headers and, if the body is JSON, its members; `address/city` is a nested one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from penstock.broker.contract import Message
from penstock.content.bindings import bind
from penstock.content.messages import Predicate, Value, attributes_from_headers
from penstock.content.parser import parse_subscription
from penstock.core.basic_properties import decode_header
from penstock.core.errors import PenstockError
from penstock.core.linear_regex import LinearRegex
from penstock.core.units import parse_count
from penstock.server.management.http import bad_request

#: Names of the filter's parts, in queries and in bodies.
FILTER_FIELDS: Final = ("key", "headers", "from", "to", "text", "where")
#: The class of expressions that have none.
_ANY_CLASS: Final = "[class,eq,any],"
_MAX_DEPTH: Final = 16


class MessageFilter:
    __slots__ = ("_class", "_headers", "_key", "_predicates", "_text", "end", "is_timed", "start")

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._key = _key_pattern(_text(fields, "key"))
        self._headers = _headers(fields.get("headers"))
        self.start = _milliseconds(fields, "from")
        self.end = _milliseconds(fields, "to")
        self.is_timed = self.start is not None or self.end is not None
        self._text = _text(fields, "text").encode()
        self._class, self._predicates = _expression(_text(fields, "where"))

    def matches_time(self, timestamp: int | None) -> bool:
        if not self.is_timed:
            return True
        if timestamp is None:
            return False
        after = self.start is None or timestamp >= self.start
        return after and (self.end is None or timestamp < self.end)

    def matches(self, message: Message) -> bool:
        """Except the time; large bodies are not searched."""
        if self._key is not None and not self._key.search(message.routing_key + "."):
            return False
        if self._text and self._text not in message.body:
            return False
        if not self._headers and not self._predicates and self._class is None:
            return True
        headers = decode_header(message.header).headers or {}
        for name, value in self._headers.items():
            if name not in headers or (value is not None and str(headers[name]) != str(value)):
                return False
        if self._class is not None and headers.get("class") != self._class:
            return False
        if not self._predicates:
            return True
        attributes = attributes_from_headers(headers) | _members(message)
        return bind(self._predicates, attributes) is not None


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name) or ""
    if not isinstance(value, str):
        raise bad_request(f"{name}: a string is expected, not {value!r}")
    return value


def _key_pattern(key: str) -> LinearRegex | None:
    """As a topic binding: `*` is a word, `#` any number of words."""
    if not key:
        return None
    words = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    pattern = "".join(words.get(word, re.escape(word) + r"\.") for word in key.split("."))
    try:
        return LinearRegex(f"^{pattern}$")
    except ValueError as error:
        raise bad_request(f"key: {error}") from None


def _headers(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value) if value else {}
        except (ValueError, RecursionError):
            raise bad_request("headers: a JSON object is expected") from None
    value = value or {}
    if not isinstance(value, dict):
        raise bad_request("headers: a JSON object is expected")
    return value


def _milliseconds(fields: Mapping[str, Any], name: str) -> int | None:
    """Milliseconds since the epoch, or a time in ISO 8601."""
    value = fields.get(name)
    if value in (None, ""):
        return None
    found = parse_count(str(value))
    if found is not None:
        return found
    try:
        return int(datetime.fromisoformat(str(value)).astimezone().timestamp() * 1000)
    except ValueError:
        raise bad_request(
            f"{name}: milliseconds since 1970 or a time such as 2026-05-31T12:00:00Z is expected"
        ) from None


def _expression(text: str) -> tuple[str | None, tuple[Predicate, ...]]:
    text = text.strip()
    if not text:
        return None, ()
    has_class = text.replace(" ", "").startswith("[class,")
    try:
        wanted = parse_subscription(text if has_class else _ANY_CLASS + text, several=True)
    except PenstockError as error:
        raise bad_request(f"where: {error}") from None
    return wanted.class_name if has_class else None, tuple(wanted.predicates)


def _members(message: Message) -> dict[str, Value]:
    """The members of a JSON body."""
    if message.body[:1] not in (b"{", b"["):
        return {}
    try:
        value = json.loads(message.body)
    except (ValueError, RecursionError):
        return {}
    found: dict[str, Any] = {}
    _flatten("", value, found, 0)
    return attributes_from_headers(found)


def _flatten(prefix: str, value: Any, found: dict[str, Any], depth: int) -> None:
    if isinstance(value, dict | list) and depth < _MAX_DEPTH:
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for name, member in entries:
            _flatten(f"{prefix}/{name}" if prefix else str(name), member, found, depth + 1)
    elif prefix:
        found[prefix] = value
