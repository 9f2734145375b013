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

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from penstock.broker.contract import Message
from penstock.core.errors import PenstockError
from penstock.protocols.amqp10.conversion import outgoing
from penstock.wire.amqp10.codec import decode_whole
from penstock.wire.amqp10.errors import INVALID_FIELD, NOT_IMPLEMENTED, DecodeError, LinkFault
from penstock.wire.amqp10.message import PROPERTY_FIELDS, MessageHead, decode_list_fields, read_head
from penstock.wire.amqp10.values import Array, Described, Symbol, Timestamp

# Which messages of a stream a receiver wants: filters that look at each message.
#
#     rabbitmq:stream-filter                      one text or several: the annotation
#                                                 `x-stream-filter-value` is one of them
#     rabbitmq:stream-match-unfiltered            true: so are messages without that annotation
#     amqp:properties-filter                      fields of the properties, as they have to be
#     amqp:application-properties-filter          the same of the application properties
#
# The last two are those of AMQP Filter Expressions 1.0: a text may begin with `&p:` (what follows
# is a prefix), `&s:` (a suffix) or `&&` (a text that begins with `&`). A message is wanted if every
# filter says so.

STREAM_FILTER: Final = "rabbitmq:stream-filter"
MATCH_UNFILTERED: Final = "rabbitmq:stream-match-unfiltered"
PROPERTIES_FILTER: Final = "amqp:properties-filter"
APPLICATION_PROPERTIES_FILTER: Final = "amqp:application-properties-filter"

#: The annotation that a publisher gives a message to be found by.
FILTER_VALUE_ANNOTATION: Final = "x-stream-filter-value"

#: Where each field of the properties stands among them.
_PROPERTY_POSITIONS: Final = {
    name.replace("_", "-"): at for at, (name, _) in enumerate(PROPERTY_FIELDS)
}

#: Of the value that a field has, or None: whether it is as it has to be.
ValuePredicate = Callable[[Any], bool]


class StreamMessageFilter:
    """What all filters of a receiver say of a message; says yes to everything until it is told."""

    __slots__ = ("_application", "_properties", "_unfiltered", "_values")

    def __init__(self) -> None:
        self._values: frozenset[str] | None = None
        self._unfiltered = False
        self._properties: dict[int, ValuePredicate] = {}
        self._application: dict[str, ValuePredicate] = {}

    def add(self, kind: str, value: Any) -> None:
        """One more filter; raises when its value is of no use."""
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
        else:
            self._application = {str(key): _value_predicate(one) for key, one in value.items()}

    def __call__(self, message: Message) -> bool:
        try:
            head = read_head(outgoing(message)[0], whole=False)
            return head is not None and self._matches(head)
        except (PenstockError, DecodeError):  # nobody could read it
            return False

    def _matches(self, head: MessageHead) -> bool:
        if self._values is not None:
            annotations = _decode_map(head.message_annotations)
            value = annotations.get(FILTER_VALUE_ANNOTATION)
            if value not in self._values and not (self._unfiltered and value is None):
                return False
        if self._properties:
            said = head.properties
            fields = [] if said is None else decode_list_fields(said, PROPERTY_FIELDS)
            fields += [None] * (len(PROPERTY_FIELDS) - len(fields))
            if not all(test(fields[at]) for at, test in self._properties.items()):
                return False
        application = _decode_map(head.application_properties) if self._application else {}
        return all(test(application.get(name)) for name, test in self._application.items())


def add_filter(selection: StreamMessageFilter, kind: str, value: Any) -> None:
    """Add a filter that a client has sent."""
    try:
        selection.add(kind, value)
    except KeyError as error:
        raise LinkFault(INVALID_FIELD, f"{kind}: there is no property {error}") from None
    except (TypeError, AttributeError) as error:
        told = f"{kind} cannot be {type(value).__name__}: {error}"
        raise LinkFault(INVALID_FIELD, told) from None


def _decode_map(encoded: bytes | None) -> dict[Any, Any]:
    return {} if encoded is None else decode_whole(encoded)


def _value_predicate(wanted: Any) -> ValuePredicate:
    if wanted is None or isinstance(wanted, Described | Array | dict | list):
        raise TypeError(f"a field is compared with a simple value, not {wanted!r:.80}")
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


#: First, last, next, an offset, a time, or an interval such as 1h.
STREAM_OFFSET: Final = "rabbitmq:stream-offset-spec"
TOPIC_BINDING: Final = "apache.org:legacy-amqp-topic-binding:string"
DIRECT_BINDING: Final = "apache.org:legacy-amqp-direct-binding:string"
HEADERS_BINDING: Final = "apache.org:legacy-amqp-headers-binding:map"
CONTENT_SUBSCRIPTION: Final = "penstock:subscription"

#: What an exchange, and what a stream may be filtered by.
BINDING_FILTERS: Final = (TOPIC_BINDING, DIRECT_BINDING, HEADERS_BINDING, CONTENT_SUBSCRIPTION)
MESSAGE_FILTERS: Final = (
    STREAM_FILTER,
    MATCH_UNFILTERED,
    PROPERTIES_FILTER,
    APPLICATION_PROPERTIES_FILTER,
)

#: The same by number, as they are registered.
_CODES: Final = {
    0x173: PROPERTIES_FILTER,
    0x174: APPLICATION_PROPERTIES_FILTER,
    0x0000_468C_0000_0000: DIRECT_BINDING,
    0x0000_468C_0000_0001: TOPIC_BINDING,
    0x0000_468C_0000_0002: HEADERS_BINDING,
}

FilterSet = dict[Any, Any]


@dataclass(slots=True)
class BindingFilters:
    """How a receiver wants an exchange bound, and the filters that say so."""

    keys: list[str] = field(default_factory=list)  #: none: the key of its address
    arguments: dict[str, Any] = field(default_factory=dict)
    accepted: FilterSet = field(default_factory=dict)


@dataclass(slots=True)
class StreamFilters:
    """Where a reader of a stream wants to begin, what it wants to see, and how it said so."""

    offset: Any = "next"  #: as consumers of 0-9-1 say it
    selects: StreamMessageFilter | None = None  #: None for everything
    accepted: FilterSet = field(default_factory=dict)


def parse_filters(filters: FilterSet | None, of: str, *kinds: str) -> list[tuple[Any, str, Any]]:
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


def parse_stream_filters(filters: FilterSet | None) -> StreamFilters:
    """How a stream is to be read."""
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
            raise LinkFault(INVALID_FIELD, f"{value} is no time in any year") from None
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise LinkFault(INVALID_FIELD, f"{STREAM_OFFSET} cannot be a {type(value).__name__}")
    return int(value) if isinstance(value, int) else str(value)


def parse_binding_filters(filters: FilterSet | None) -> BindingFilters:
    """How an exchange is to be bound."""
    wanted = BindingFilters()
    for name, kind, value in parse_filters(filters, "an exchange", *BINDING_FILTERS):
        if kind == HEADERS_BINDING and isinstance(value, dict):
            wanted.arguments |= {str(key): _argument_value(one) for key, one in value.items()}
        elif kind == CONTENT_SUBSCRIPTION and isinstance(value, str):
            wanted.arguments["x-subscription"] = str(value)
        elif kind in (TOPIC_BINDING, DIRECT_BINDING) and _is_string_or_strings(value):
            wanted.keys += [value] if isinstance(value, str) else value
        else:
            raise LinkFault(INVALID_FIELD, f"{kind} cannot be a {type(value).__name__}")
        wanted.accepted[Symbol(name)] = (filters or {})[name]
    return wanted


def queue_arguments(properties: dict[Any, Any] | None) -> dict[str, Any]:
    """What a link's properties ask of a queue that is made for it: those named `x-…`."""
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
    """As arguments of AMQP 0-9-1 have it."""
    if isinstance(value, bool) or value is None:
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise LinkFault(INVALID_FIELD, f"an argument cannot be a {type(value).__name__}")
