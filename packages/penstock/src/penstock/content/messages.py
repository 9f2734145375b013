"""The messages of the language as values.

A publication is a class and what its attributes hold. A filter is a class and predicates that have
to be true together: a subscription says which publications are wanted, an advertisement which will
come. A composite joins subscriptions by `&` and `||`. What is un-done is named by its id alone.

Messages are equal when they say the same: the order of attributes does not matter, nor do time and
payload of a publication.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias


class Predicate(NamedTuple):
    attribute: str
    operator: Operator
    operand: Operand


class Filter:
    """A class and a conjunction of predicates on other attributes."""

    __slots__ = ("class_name", "predicates")

    def __init__(self, class_name: str, predicates: tuple[Predicate, ...] = ()) -> None:
        self.class_name = class_name
        self.predicates = predicates

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, Filter)
        return self.class_name == other.class_name and (
            self.predicates == other.predicates or set(self.predicates) == set(other.predicates)
        )

    def __hash__(self) -> int:
        return hash((self.class_name, frozenset(self.predicates)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.class_name!r}, {self.predicates!r})"


class Subscription(Filter):
    """Which publications somebody wants."""

    __slots__ = ()


class Advertisement(Filter):
    """Which publications somebody is going to send."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Publication:
    """An event. An attribute may hold a variable; no predicate is true of that."""

    class_name: str
    attributes: Mapping[str, Value | Variable]
    time: datetime | None = None
    payload: Any = field(default=None, repr=False)  #: travels along and is not looked at

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Publication):
            return NotImplemented
        return self.class_name == other.class_name and self.attributes == other.attributes

    def __hash__(self) -> int:
        return hash((self.class_name, frozenset(self.attributes.items())))


class JoinOperator(Enum):
    AND = "&"
    OR = "||"


@dataclass(frozen=True, slots=True)
class Join:
    joining: JoinOperator
    left: Subscription | Join
    right: Subscription | Join


Expression: TypeAlias = Subscription | Join


@dataclass(frozen=True, slots=True)
class CompositeSubscription:
    """A subscription to several publications together."""

    expression: Expression

    def parts(self) -> Iterator[Subscription]:
        """The atomic subscriptions, from left to right."""
        waiting = [self.expression]
        while waiting:
            node = waiting.pop()
            if isinstance(node, Join):
                waiting += (node.right, node.left)
            else:
                yield node


@dataclass(frozen=True, slots=True)
class Unsubscription:
    id: str


@dataclass(frozen=True, slots=True)
class Unadvertisement:
    id: str


@dataclass(frozen=True, slots=True)
class CompositeUnsubscription:
    id: str


# What an attribute can hold and what it can be compared with: values and variables.
#
# A value is a text, a whole number of 64 bits or a finite float. Numbers are of one kind when they
# are compared: 5 equals 5.0. Text is ordered by code point. A variable stands for the value that a
# publication brings.

Number: TypeAlias = int | float
Value: TypeAlias = str | Number

INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1


class VariableType(Enum):
    """What a variable may stand for; the value is its letter in the language."""

    STRING = "S"
    INTEGER = "I"  #: a whole number: 5, and 5.0 too unless types are strict
    FLOAT = "F"  #: any number


@dataclass(frozen=True, slots=True)
class Variable:
    kind: VariableType
    name: str


Operand: TypeAlias = Value | Variable


def is_number(value: object) -> bool:
    """Whether it is a number of the language; true, false, infinities and NaN are none."""
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and INT_MIN <= value <= INT_MAX


def is_integral(value: Number, strict: bool) -> bool:
    """Whether an integer variable takes it: by its value, or by its type where types are strict."""
    return isinstance(value, int) or (not strict and value.is_integer())


def matches_type(value: Value, variable: Variable, strict: bool = False) -> bool:
    """Whether a variable can stand for a value."""
    if isinstance(value, str):
        return variable.kind is VariableType.STRING
    if variable.kind is VariableType.INTEGER:
        return is_integral(value, strict)
    return variable.kind is VariableType.FLOAT


# The operators of predicates: how they are written, what they compare, when they hold.


class Operator(Enum):
    """The value is how the language writes it."""

    EQ = "eq"
    NEQ = "neq"
    STR_LT = "str-lt"
    STR_LE = "str-le"
    STR_GT = "str-gt"
    STR_GE = "str-ge"
    PREFIX = "str-prefix"
    POSTFIX = "str-postfix"
    CONTAINS = "str-contains"
    EQUAL = "="
    UNEQUAL = "<>"
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    PRESENT = "isPresent"

    # Members are alone of their kind: hashing by identity is quicker than by name.
    __hash__ = object.__hash__


#: Whether `value OPERATOR operand` holds, both being of the operator's type. Presence has been
#: seen to by whoever has a value to ask about.
COMPARISONS: Final[dict[Operator, Callable[[Any, Any], bool]]] = {
    Operator.EQ: operator.eq,
    Operator.NEQ: operator.ne,
    Operator.STR_LT: operator.lt,
    Operator.STR_LE: operator.le,
    Operator.STR_GT: operator.gt,
    Operator.STR_GE: operator.ge,
    Operator.PREFIX: str.startswith,
    Operator.POSTFIX: str.endswith,
    Operator.CONTAINS: operator.contains,
    Operator.EQUAL: operator.eq,
    Operator.UNEQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.LESS_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_EQUAL: operator.ge,
    Operator.PRESENT: lambda value, operand: True,
}

#: The operators that take text, in the order of the language's documentation.
TEXTUAL: Final = (
    *(Operator.EQ, Operator.NEQ),
    *(Operator.STR_LT, Operator.STR_LE, Operator.STR_GT, Operator.STR_GE),
    *(Operator.PREFIX, Operator.POSTFIX, Operator.CONTAINS),
)
NUMERIC: Final = (
    *(Operator.EQUAL, Operator.UNEQUAL),
    *(Operator.LESS, Operator.LESS_EQUAL, Operator.GREATER, Operator.GREATER_EQUAL),
)

#: Under these a variable takes the value it meets; under others it is compared with it.
BINDING: Final = frozenset((Operator.EQ, Operator.EQUAL))


# Headers of a message as the attributes of a publication.
#
# Those whose values the language knows: texts and numbers as they are, what is true or false as a
# text, decimals as numbers, times as seconds since 1970. The class is among the headers, and not
# among the attributes.


def attributes_from_headers(headers: Mapping[str, Any]) -> dict[str, Value]:
    attributes: dict[str, Value] = {}
    for name, value in headers.items():
        if isinstance(value, bool):
            attributes[name] = "true" if value else "false"
        elif isinstance(value, str) or is_number(value):
            attributes[name] = value
        elif isinstance(value, Decimal):
            attributes[name] = float(value)
        elif isinstance(value, datetime):
            attributes[name] = int(value.replace(tzinfo=value.tzinfo or UTC).timestamp())
    attributes.pop("class", None)
    return attributes
