"""Filters of a source: what a receiver wants of it.

    rabbitmq:stream-offset-spec                     where to begin in a stream
    rabbitmq:stream-filter and others               which of its messages (`selection.py`)
    apache.org:legacy-amqp-topic-binding:string     the keys an exchange is bound by, one or a list
    apache.org:legacy-amqp-direct-binding:string    the same
    apache.org:legacy-amqp-headers-binding:map      the arguments a headers exchange is bound with
    penstock:subscription                           what a content exchange is to match

A filter is known by its descriptor, or by its name where it has none. The source in the broker's
answer has those that are in force, which are all that were asked for: a link with one that cannot
be applied is refused, since few receivers look, and what they did not want would be lost to them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from penstock.terminals.amqp10.selection import (
    APPLICATION_PROPERTIES,
    MATCH_UNFILTERED,
    PROPERTIES,
    STREAM_FILTER,
    Selection,
    read_filter,
)
from penstock.wire.amqp10.conditions import INVALID_FIELD, NOT_IMPLEMENTED, LinkFault
from penstock.wire.amqp10.values import Described, Symbol, Timestamp

#: First, last, next, an offset, a time, or an interval such as 1h.
STREAM_OFFSET: Final = "rabbitmq:stream-offset-spec"
TOPIC_BINDING: Final = "apache.org:legacy-amqp-topic-binding:string"
DIRECT_BINDING: Final = "apache.org:legacy-amqp-direct-binding:string"
HEADERS_BINDING: Final = "apache.org:legacy-amqp-headers-binding:map"
SUBSCRIPTION: Final = "penstock:subscription"

#: What an exchange, and what a stream may be filtered by.
BINDINGS: Final = (TOPIC_BINDING, DIRECT_BINDING, HEADERS_BINDING, SUBSCRIPTION)
SELECTIONS: Final = (STREAM_FILTER, MATCH_UNFILTERED, PROPERTIES, APPLICATION_PROPERTIES)

#: The same by number, as they are registered.
_CODES: Final = {
    0x173: PROPERTIES,
    0x174: APPLICATION_PROPERTIES,
    0x0000_468C_0000_0000: DIRECT_BINDING,
    0x0000_468C_0000_0001: TOPIC_BINDING,
    0x0000_468C_0000_0002: HEADERS_BINDING,
}

Filters = dict[Any, Any]


@dataclass(slots=True)
class Wanted:
    """How a receiver wants an exchange bound, and the filters that say so."""

    keys: list[str] = field(default_factory=list)  #: none: the key of its address
    arguments: dict[str, Any] = field(default_factory=dict)
    accepted: Filters = field(default_factory=dict)


@dataclass(slots=True)
class StreamFilters:
    """Where a reader of a stream wants to begin, what it wants to see, and how it said so."""

    offset: Any = "next"  #: as consumers of 0-9-1 say it
    selects: Selection | None = None  #: None for everything
    accepted: Filters = field(default_factory=dict)


def known_filters(filters: Filters | None, of: str, *kinds: str) -> list[tuple[Any, str, Any]]:
    """The filters of a source, each as its name, its kind and its value.

    Raises when one is of another kind than these, which are what the source can be filtered by.
    """
    found = []
    for name, wanted in (filters or {}).items():
        described = isinstance(wanted, Described)
        descriptor = wanted.descriptor if described else name
        is_code = isinstance(descriptor, int) and not isinstance(descriptor, bool)
        kind = _CODES.get(descriptor, hex(descriptor)) if is_code else str(descriptor)
        if kind not in kinds:
            can = f"it can be filtered by {', '.join(kinds)}" if kinds else "it cannot be filtered"
            raise LinkFault(NOT_IMPLEMENTED, f"filter '{kind[:80]}' of {of} is not known: {can}")
        found.append((name, kind, wanted.value if described else wanted))
    return found


def stream_filters(filters: Filters | None) -> StreamFilters:
    """How a stream is to be read."""
    found = StreamFilters()
    for name, kind, value in known_filters(filters, "a stream", STREAM_OFFSET, *SELECTIONS):
        if kind == STREAM_OFFSET:
            found.offset = _offset(value)
        else:
            found.selects = found.selects or Selection()
            read_filter(found.selects, kind, value)
        found.accepted[Symbol(name)] = (filters or {})[name]
    return found


def _offset(value: Any) -> Any:
    if isinstance(value, Timestamp):
        try:
            return datetime.fromtimestamp(value / 1000, UTC)
        except (OverflowError, ValueError, OSError):
            raise LinkFault(INVALID_FIELD, f"{value} is no time in any year") from None
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise LinkFault(INVALID_FIELD, f"{STREAM_OFFSET} cannot be a {type(value).__name__}")
    return int(value) if isinstance(value, int) else str(value)


def bindings(filters: Filters | None) -> Wanted:
    """How an exchange is to be bound."""
    wanted = Wanted()
    for name, kind, value in known_filters(filters, "an exchange", *BINDINGS):
        if kind == HEADERS_BINDING and isinstance(value, dict):
            wanted.arguments |= {str(key): _plain(one) for key, one in value.items()}
        elif kind == SUBSCRIPTION and isinstance(value, str):
            wanted.arguments["x-subscription"] = str(value)
        elif kind in (TOPIC_BINDING, DIRECT_BINDING) and _texts(value):
            wanted.keys += [value] if isinstance(value, str) else value
        else:
            raise LinkFault(INVALID_FIELD, f"{kind} cannot be a {type(value).__name__}")
        wanted.accepted[Symbol(name)] = (filters or {})[name]
    return wanted


def arguments_of(properties: dict[Any, Any] | None) -> dict[str, Any]:
    """What a link's properties ask of a queue that is made for it: those named `x-…`."""
    return {
        str(key): _plain(value)
        for key, value in (properties or {}).items()
        if isinstance(key, str) and key.startswith("x-")
    }


def _texts(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)
    )


def _plain(value: Any) -> Any:
    """As arguments of AMQP 0-9-1 have it."""
    if isinstance(value, bool) or value is None:
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise LinkFault(INVALID_FIELD, f"an argument cannot be a {type(value).__name__}")
