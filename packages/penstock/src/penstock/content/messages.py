"""The messages of the content language as values.

A publication has a class and attributes. A filter has a class and predicates that must all hold: a
subscription selects publications, an advertisement announces them. A composite joins subscriptions
by `&` and `||`.

Messages are equal if they have the same content: neither the order of attributes nor the time and
payload of a publication count.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.core.field_table import is_decimal


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
    """The publications that a subscriber wants."""

    __slots__ = ()

    def parts(self) -> Iterator[Subscription]:
        """As `CompositeSubscription.parts`."""
        yield self


class Advertisement(Filter):
    """The publications that a publisher will send."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Publication:
    """An event. An attribute may be a variable; no predicate holds for it."""

    class_name: str
    attributes: Mapping[str, Value | Variable]
    time: datetime | None = None
    payload: Any = field(default=None, repr=False)  #: not used for matching

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
    expression: Expression

    def parts(self) -> Iterator[Subscription]:
        """The atomic subscriptions, from left to right."""
        pending = [self.expression]
        while pending:
            node = pending.pop()
            if isinstance(node, Join):
                pending += (node.right, node.left)
            else:
                yield node


# A value is text, a 64-bit integer or a finite float. Numbers compare by value: 5 equals 5.0. Text
# is ordered by code point. A variable stands for the value of a publication.

Number: TypeAlias = int | float
Value: TypeAlias = str | Number

INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1


class VariableType(Enum):
    """The type of a variable; the value is its letter in the language."""

    STRING = "S"
    INTEGER = "I"  #: 5, and 5.0 unless types are strict
    FLOAT = "F"  #: any number


@dataclass(frozen=True, slots=True)
class Variable:
    kind: VariableType
    name: str


Operand: TypeAlias = Value | Variable


def is_number(value: object) -> bool:
    """Whether it is a number of the language; booleans, infinities and NaN are not."""
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and INT_MIN <= value <= INT_MAX


def is_integral(value: Number, strict: bool) -> bool:
    """Whether it is an integer: by value, or by type if strict."""
    return isinstance(value, int) or (not strict and value.is_integer())


def matches_type(value: Value, variable: Variable, strict: bool = False) -> bool:
    if isinstance(value, str):
        return variable.kind is VariableType.STRING
    if variable.kind is VariableType.INTEGER:
        return is_integral(value, strict)
    return variable.kind is VariableType.FLOAT


class Operator(Enum):
    """The value is the syntax of the language."""

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

    # Hashing by identity is faster than by name.
    __hash__ = object.__hash__


#: Whether `value OPERATOR operand` holds for operands of the operator's type. For PRESENT, the
#: caller has checked that there is a value.
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

#: Text operators, in the order of the documentation.
TEXTUAL: Final = (
    *(Operator.EQ, Operator.NEQ),
    *(Operator.STR_LT, Operator.STR_LE, Operator.STR_GT, Operator.STR_GE),
    *(Operator.PREFIX, Operator.POSTFIX, Operator.CONTAINS),
)
NUMERIC: Final = (
    *(Operator.EQUAL, Operator.UNEQUAL),
    *(Operator.LESS, Operator.LESS_EQUAL, Operator.GREATER, Operator.GREATER_EQUAL),
)

#: Operators that bind a variable; others compare with it.
BINDING: Final = frozenset((Operator.EQ, Operator.EQUAL))


def attributes_from_headers(headers: Mapping[str, Any]) -> dict[str, Value]:
    """Message headers as attributes, without `class`.

    Booleans become text, decimals numbers, times seconds since 1970; other types are omitted.
    """
    attributes: dict[str, Value] = {}
    for name, value in headers.items():
        if isinstance(value, bool):
            attributes[name] = "true" if value else "false"
        elif isinstance(value, str) or is_number(value):
            attributes[name] = value
        elif is_decimal(value):
            attributes[name] = float(value)
        elif isinstance(value, datetime):
            attributes[name] = int(value.replace(tzinfo=value.tzinfo or UTC).timestamp())
    attributes.pop("class", None)
    return attributes
