"""Which messages of a stream a receiver wants: filters that look at each message.

    rabbitmq:stream-filter                      one text or several: the annotation
                                                `x-stream-filter-value` is one of them
    rabbitmq:stream-match-unfiltered            true: so are messages without that annotation
    amqp:properties-filter                      fields of the properties, as they have to be
    amqp:application-properties-filter          the same of the application properties

The last two are those of AMQP Filter Expressions 1.0: a text may begin with `&p:` (what follows is
a prefix), `&s:` (a suffix) or `&&` (a text that begins with `&`). A message is wanted if every
filter says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.broker.contract import Message
from penstock.core.errors import PenstockError
from penstock.terminals.amqp10.conversion import outgoing
from penstock.wire.amqp10.codec import decode_whole
from penstock.wire.amqp10.conditions import INVALID_FIELD, LinkFault
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.message import PROPERTY_FIELDS, read_list
from penstock.wire.amqp10.sections import Head, read_head
from penstock.wire.amqp10.values import Array, Described

STREAM_FILTER: Final = "rabbitmq:stream-filter"
MATCH_UNFILTERED: Final = "rabbitmq:stream-match-unfiltered"
PROPERTIES: Final = "amqp:properties-filter"
APPLICATION_PROPERTIES: Final = "amqp:application-properties-filter"

#: The annotation that a publisher gives a message to be found by.
FILTER_VALUE: Final = "x-stream-filter-value"

#: Where each field of the properties stands among them.
_PLACES: Final = {name.replace("_", "-"): at for at, (name, _) in enumerate(PROPERTY_FIELDS)}

#: Of the value that a field has, or None: whether it is as it has to be.
Test = Callable[[Any], bool]


class Selection:
    """What all filters of a receiver say of a message; says yes to everything until it is told."""

    __slots__ = ("_application", "_properties", "_unfiltered", "_values")

    def __init__(self) -> None:
        self._values: frozenset[str] | None = None
        self._unfiltered = False
        self._properties: dict[int, Test] = {}
        self._application: dict[str, Test] = {}

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
        elif kind == PROPERTIES:
            self._properties = {_PLACES[str(key)]: _test(one) for key, one in value.items()}
        else:
            self._application = {str(key): _test(one) for key, one in value.items()}

    def __call__(self, message: Message) -> bool:
        try:
            head = read_head(outgoing(message)[0], whole=False)
            return head is not None and self._matches(head)
        except (PenstockError, DecodeError):  # nobody could read it
            return False

    def _matches(self, head: Head) -> bool:
        if self._values is not None:
            annotations = _table(head.message_annotations)
            value = annotations.get(FILTER_VALUE)
            if value not in self._values and not (self._unfiltered and value is None):
                return False
        if self._properties:
            said = head.properties
            fields = [] if said is None else read_list(said, PROPERTY_FIELDS)
            fields += [None] * (len(PROPERTY_FIELDS) - len(fields))
            if not all(test(fields[at]) for at, test in self._properties.items()):
                return False
        application = _table(head.application_properties) if self._application else {}
        return all(test(application.get(name)) for name, test in self._application.items())


def read_filter(selection: Selection, kind: str, value: Any) -> None:
    """Add a filter that a client has sent."""
    try:
        selection.add(kind, value)
    except KeyError as error:
        raise LinkFault(INVALID_FIELD, f"{kind}: there is no property {error}") from None
    except (TypeError, AttributeError) as error:
        told = f"{kind} cannot be {type(value).__name__}: {error}"
        raise LinkFault(INVALID_FIELD, told) from None


def _table(encoded: bytes | None) -> dict[Any, Any]:
    return {} if encoded is None else decode_whole(encoded)


def _test(wanted: Any) -> Test:
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
