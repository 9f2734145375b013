"""Filters of a source.

    rabbitmq:stream-offset-spec                     where to begin in a stream: first, last, next,
                                                    an offset, a time, or an interval such as 1h
    rabbitmq:stream-filter                          a string or a list: the annotation
                                                    x-stream-filter-value is one of them
    rabbitmq:stream-match-unfiltered                true: also messages without that annotation
    amqp:properties-filter                          values of fields of the properties
    amqp:application-properties-filter              the same of the application properties
    amqp:sql-filter                                 a condition (`sql_filter.py`)
    apache.org:legacy-amqp-topic-binding:string     binding keys of an exchange, one or a list
    apache.org:legacy-amqp-direct-binding:string    the same
    apache.org:legacy-amqp-headers-binding:map      binding arguments of a headers exchange
    penstock:subscription                           a subscription to a content exchange

The two property filters are those of AMQP Filter Expressions 1.0: a string may begin with `&p:`
(a prefix follows), `&s:` (a suffix) or `&&` (a string that begins with `&`). A message must pass
all filters.

A filter is identified by its descriptor, or by its name if it has none. A link with a filter that
cannot be applied is refused: few receivers check which filters are in force, and without the
filter they would consume messages that they did not ask for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from penstock.broker.contract import Message
from penstock.core.errors import PenstockError, PreconditionFailed
from penstock.protocols.amqp10.conversion.encoder import convert_outgoing
from penstock.protocols.amqp10.sql_filter import MessageFields, SqlFilter
from penstock.wire.amqp10.codec import decode_whole
from penstock.wire.amqp10.errors import INVALID_FIELD, NOT_IMPLEMENTED, DecodeError, LinkFault
from penstock.wire.amqp10.message import (
    PROPERTY_FIELDS,
    Amqp10Header,
    Amqp10Properties,
    MessageHead,
    decode_header_section,
    decode_list_fields,
    decode_properties_section,
    read_head,
)
from penstock.wire.amqp10.values import Array, Described, Symbol, Timestamp

STREAM_FILTER: Final = "rabbitmq:stream-filter"
MATCH_UNFILTERED: Final = "rabbitmq:stream-match-unfiltered"
PROPERTIES_FILTER: Final = "amqp:properties-filter"
APPLICATION_PROPERTIES_FILTER: Final = "amqp:application-properties-filter"
SQL_FILTER: Final = "amqp:sql-filter"

STREAM_OFFSET: Final = "rabbitmq:stream-offset-spec"
TOPIC_BINDING: Final = "apache.org:legacy-amqp-topic-binding:string"
DIRECT_BINDING: Final = "apache.org:legacy-amqp-direct-binding:string"
HEADERS_BINDING: Final = "apache.org:legacy-amqp-headers-binding:map"
CONTENT_SUBSCRIPTION: Final = "penstock:subscription"

#: The filters for exchanges, and for messages of a stream.
BINDING_FILTERS: Final = (TOPIC_BINDING, DIRECT_BINDING, HEADERS_BINDING, CONTENT_SUBSCRIPTION)
MESSAGE_FILTERS: Final = (
    STREAM_FILTER,
    MATCH_UNFILTERED,
    PROPERTIES_FILTER,
    APPLICATION_PROPERTIES_FILTER,
    SQL_FILTER,
)

#: Registered numeric descriptors.
_CODES: Final = {
    0x120: SQL_FILTER,
    0x173: PROPERTIES_FILTER,
    0x174: APPLICATION_PROPERTIES_FILTER,
    0x0000_468C_0000_0000: DIRECT_BINDING,
    0x0000_468C_0000_0001: TOPIC_BINDING,
    0x0000_468C_0000_0002: HEADERS_BINDING,
}

#: Of a message that does not have one.
DEFAULT_PRIORITY: Final = 4

FILTER_VALUE_ANNOTATION: Final = "x-stream-filter-value"

#: The position of each field of the properties.
_PROPERTY_POSITIONS: Final = {
    name.replace("_", "-"): at for at, (name, _) in enumerate(PROPERTY_FIELDS)
}

#: Tests the value of a field, which may be None.
ValuePredicate = Callable[[Any], bool]


class StreamMessageFilter:
    """The conjunction of the message filters of a receiver; matches everything at first."""

    def __init__(self) -> None:
        self._values: frozenset[str] | None = None
        self._unfiltered = False
        self._properties: dict[int, ValuePredicate] = {}
        self._application: dict[str, ValuePredicate] = {}
        self._sql: SqlFilter | None = None

    def add(self, kind: str, value: Any) -> None:
        """Raises `KeyError`, `TypeError` or `AttributeError` for an invalid value."""
        if kind == STREAM_FILTER:
            values = value.values if isinstance(value, Array) else value
            self._values = frozenset([values] if isinstance(values, str) else values)
            if not self._values or not all(isinstance(one, str) for one in self._values):
                raise TypeError("neither a string nor a list of strings")
        elif kind == MATCH_UNFILTERED:
            if not isinstance(value, bool):
                raise TypeError("neither true nor false")
            self._unfiltered = value
        elif kind == PROPERTIES_FILTER:
            self._properties = {
                _PROPERTY_POSITIONS[str(key)]: _value_predicate(one) for key, one in value.items()
            }
        elif kind == SQL_FILTER:
            if not isinstance(value, str):
                raise TypeError("not a string")
            self._sql = SqlFilter(value)
        else:
            self._application = {str(key): _value_predicate(one) for key, one in value.items()}

    def __call__(self, message: Message) -> bool:
        try:
            head = read_head(convert_outgoing(message)[0], whole=False)
            return head is not None and self._matches(head)
        except (PenstockError, DecodeError):  # invalid properties
            return False

    def _matches(self, head: MessageHead) -> bool:
        if self._values is not None:
            annotations = _decode_map(head.message_annotations)
            value = annotations.get(FILTER_VALUE_ANNOTATION)
            if value not in self._values and not (self._unfiltered and value is None):
                return False
        if self._properties:
            encoded = head.properties
            fields = [] if encoded is None else decode_list_fields(encoded, PROPERTY_FIELDS)
            fields += [None] * (len(PROPERTY_FIELDS) - len(fields))
            if not all(test(fields[at]) for at, test in self._properties.items()):
                return False
        if self._sql is not None and not self._sql(message_fields(head)):
            return False
        application = _decode_map(head.application_properties) if self._application else {}
        return all(test(application.get(name)) for name, test in self._application.items())


def message_fields(head: MessageHead) -> MessageFields:
    header = decode_header_section(head.header) if head.header is not None else Amqp10Header()
    properties = (
        decode_properties_section(head.properties)
        if head.properties is not None
        else Amqp10Properties()
    )
    return MessageFields(
        {
            "durable": bool(header.durable),
            "priority": DEFAULT_PRIORITY if header.priority is None else header.priority,
            "ttl": header.ttl,
            "first_acquirer": bool(header.first_acquirer),
            "delivery_count": header.delivery_count or 0,
        },
        {name: getattr(properties, name) for name, _ in PROPERTY_FIELDS},
        _decode_map(head.application_properties),
    )


def add_filter(selection: StreamMessageFilter, kind: str, value: Any) -> None:
    try:
        selection.add(kind, value)
    except KeyError as error:
        raise LinkFault(INVALID_FIELD, f"{kind}: unknown property {error}") from None
    except PreconditionFailed as error:
        raise LinkFault(INVALID_FIELD, f"{kind}: {error}") from None
    except (TypeError, AttributeError) as error:
        reason = f"{kind} cannot be {type(value).__name__}: {error}"
        raise LinkFault(INVALID_FIELD, reason) from None


def _decode_map(encoded: bytes | None) -> dict[Any, Any]:
    return {} if encoded is None else decode_whole(encoded)


def _value_predicate(wanted: Any) -> ValuePredicate:
    if wanted is None or isinstance(wanted, Described | Array | dict | list):
        raise TypeError(f"a filter needs a simple value, not {wanted!r:.80}")
    if isinstance(wanted, str) and wanted.startswith("&"):
        rest = wanted[3:]
        if wanted.startswith("&p:"):
            return lambda value: isinstance(value, str) and value.startswith(rest)
        if wanted.startswith("&s:"):
            return lambda value: isinstance(value, str) and value.endswith(rest)
        if not wanted.startswith("&&"):
            raise TypeError(f"{wanted!r:.80} begins with &, but not with &p:, &s: or &&")
        wanted = wanted[1:]
    boolean = isinstance(wanted, bool)
    return lambda value: value == wanted and isinstance(value, bool) is boolean


FilterSet = dict[Any, Any]


@dataclass(slots=True)
class BindingFilters:
    keys: list[str] = field(default_factory=list)  #: empty for the key of the address
    arguments: dict[str, Any] = field(default_factory=dict)
    accepted: FilterSet = field(default_factory=dict)


@dataclass(slots=True)
class StreamFilters:
    offset: Any = "next"  #: a value of the consumer argument x-stream-offset
    selects: StreamMessageFilter | None = None  #: None for everything
    accepted: FilterSet = field(default_factory=dict)


def parse_filters(filters: FilterSet | None, of: str, *kinds: str) -> list[tuple[Any, str, Any]]:
    """The name, kind and value of each filter; raises for one of another kind than these."""
    found = []
    for name, wanted in (filters or {}).items():
        described = isinstance(wanted, Described)
        descriptor = wanted.descriptor if described else name
        is_code = isinstance(descriptor, int) and not isinstance(descriptor, bool)
        kind = _CODES.get(descriptor, hex(descriptor)) if is_code else str(descriptor)
        if kind not in kinds:
            known = f"supported are {', '.join(kinds)}" if kinds else "it has no filters"
            raise LinkFault(
                NOT_IMPLEMENTED, f"filter '{kind[:80]}' of {of} is not supported: {known}"
            )
        found.append((name, kind, wanted.value if described else wanted))
    return found


def parse_stream_filters(filters: FilterSet | None) -> StreamFilters:
    found = StreamFilters()
    for name, kind, value in parse_filters(filters, "a stream", STREAM_OFFSET, *MESSAGE_FILTERS):
        if kind == STREAM_OFFSET:
            found.offset = _offset(value)
        else:
            found.selects = found.selects or StreamMessageFilter()
            add_filter(found.selects, kind, value)
        found.accepted[Symbol(name)] = (filters or {})[name]
    return found


def _offset(value: Any) -> Any:
    if isinstance(value, Timestamp):
        try:
            return datetime.fromtimestamp(value / 1000, UTC)
        except (OverflowError, ValueError, OSError):
            raise LinkFault(
                INVALID_FIELD, f"{STREAM_OFFSET}: timestamp {value} is out of range"
            ) from None
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise LinkFault(INVALID_FIELD, f"{STREAM_OFFSET} cannot be a {type(value).__name__}")
    return int(value) if isinstance(value, int) else str(value)


def parse_binding_filters(filters: FilterSet | None) -> BindingFilters:
    binding = BindingFilters()
    for name, kind, value in parse_filters(filters, "an exchange", *BINDING_FILTERS):
        if kind == HEADERS_BINDING and isinstance(value, dict):
            binding.arguments |= {str(key): _argument_value(one) for key, one in value.items()}
        elif kind == CONTENT_SUBSCRIPTION and isinstance(value, str):
            binding.arguments["x-subscription"] = str(value)
        elif kind in (TOPIC_BINDING, DIRECT_BINDING) and _is_string_or_strings(value):
            binding.keys += [value] if isinstance(value, str) else value
        else:
            raise LinkFault(INVALID_FIELD, f"{kind} cannot be a {type(value).__name__}")
        binding.accepted[Symbol(name)] = (filters or {})[name]
    return binding


def queue_arguments(properties: dict[Any, Any] | None) -> dict[str, Any]:
    """Arguments for a new queue: the link properties named `x-…`."""
    return {
        str(key): _argument_value(value)
        for key, value in (properties or {}).items()
        if isinstance(key, str) and key.startswith("x-")
    }


def _is_string_or_strings(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)
    )


def _argument_value(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise LinkFault(INVALID_FIELD, f"an argument cannot be a {type(value).__name__}")
