"""A filter in normal form: the set of values it allows each attribute.

All predicates on an attribute become one set of numbers or of texts. Attributes that one variable
binds form a group: they have to hold the same value. Variables under other operators than equality
ask for their type here; that they compare as well only narrows the filter, which `relations` keeps
in mind. Whoever asks one filter many questions makes its extent once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from penstock.content.messages import Filter, Predicate
from penstock.content.number_sets import ANY_NUMBER, INTEGERS, WHOLE_NUMBERS, NumberSet, numbers
from penstock.content.operators import BINDING, Operator
from penstock.content.string_sets import ANY_STRING, StringSet, strings
from penstock.content.values import Kind, Value, Variable

#: What an attribute may hold; None is nothing: it would have to be number and text at once.
Values: TypeAlias = NumberSet | StringSet | None


@dataclass(frozen=True, slots=True)
class Extent:
    class_name: str
    allowed: Mapping[str, Values]
    bound: Mapping[str, frozenset[str]]  #: the attributes that each variable binds
    compared: frozenset[Predicate]  #: those that compare with a variable's value

    @classmethod
    def of(cls, message: Filter, strict: bool = False) -> Extent:
        allowed: dict[str, Values] = {}
        bound: dict[str, set[str]] = {}
        compared = []
        for predicate in message.predicates:
            attribute, operator, operand = predicate
            values = allowed_by(predicate, strict)
            allowed[attribute] = (
                both(allowed[attribute], values) if attribute in allowed else values
            )
            if isinstance(operand, Variable):
                if operator in BINDING:
                    bound.setdefault(operand.name, set()).add(attribute)
                elif operator is not Operator.PRESENT:
                    compared.append(predicate)
        frozen = {variable: frozenset(names) for variable, names in bound.items()}
        return cls(message.class_name, allowed, frozen, frozenset(compared))

    def groups(self) -> Iterable[frozenset[str]]:
        """Attributes that have to be equal where they are present, two at least."""
        return (names for names in self.bound.values() if len(names) > 1)


def allowed_by(predicate: Predicate, strict: bool = False) -> Values:
    operand = predicate.operand
    if isinstance(operand, Variable):
        if operand.kind is Kind.STRING:
            return ANY_STRING
        if operand.kind is Kind.INTEGER:
            return INTEGERS if strict else WHOLE_NUMBERS
        return ANY_NUMBER
    if isinstance(operand, str):
        return strings(predicate.operator, operand)
    return numbers(predicate.operator, operand, strict)


def both(left: Values, right: Values) -> Values:
    """What two sets have in common."""
    if isinstance(left, NumberSet) and isinstance(right, NumberSet):
        return left & right
    if isinstance(left, StringSet) and isinstance(right, StringSet):
        return left & right
    return None


def is_empty(values: Values) -> bool:
    return values is None or values.is_empty()


def only(values: Values) -> Value | None:
    """The one value there is, if it is one."""
    return None if values is None else values.only()


def includes(wide: Values, narrow: Values) -> bool:
    """Whether all of the narrow one is in the wide one."""
    if isinstance(wide, NumberSet) and isinstance(narrow, NumberSet):
        return wide.includes(narrow)
    if isinstance(wide, StringSet) and isinstance(narrow, StringSet):
        return wide.includes(narrow)
    return is_empty(narrow)


def merged(groups: Iterable[Iterable[str]]) -> tuple[frozenset[str], ...]:
    """Groups that share a member are one."""
    apart: list[frozenset[str]] = []
    for names in groups:
        group = frozenset(names)
        for other in [other for other in apart if other & group]:
            apart.remove(other)
            group |= other
        apart.append(group)
    return tuple(apart)
