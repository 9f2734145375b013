"""The messages of the language as values.

A publication is a class and what its attributes hold. A filter is a class and predicates that have
to be true together: a subscription says which publications are wanted, an advertisement which will
come. A composite joins subscriptions by `&` and `||`. What is un-done is named by its id alone.

Messages are equal when they say the same: the order of attributes does not matter, nor do time and
payload of a publication.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from penstock.content.operators import Operator
from penstock.content.values import Operand, Value, Variable


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


class Joining(Enum):
    AND = "&"
    OR = "||"


@dataclass(frozen=True, slots=True)
class Join:
    joining: Joining
    left: Subscription | Join
    right: Subscription | Join


Expression: TypeAlias = Subscription | Join


@dataclass(frozen=True, slots=True)
class Composite:
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
