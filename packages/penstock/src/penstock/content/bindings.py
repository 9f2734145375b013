"""Whether predicates are true of a publication, and what variables stand for if they are.

Under `eq` and `=` a variable takes the value it meets, everywhere the same one. Under another
operator the value is compared with what the variable stands for, once that is known: in the same
publication, or in another that a composite joins it with. A variable that nothing binds asks only
for its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.content.messages import (
    BINDING,
    COMPARISONS,
    Operator,
    Predicate,
    Value,
    Variable,
    matches_type,
)


class PendingComparison(NamedTuple):
    """What waits for a variable's value."""

    value: Value
    operator: Operator
    variable: str


@dataclass(frozen=True, slots=True)
class Bindings:
    values: Mapping[str, Value]
    waiting: tuple[PendingComparison, ...] = ()

    def merge(self, other: Bindings) -> Bindings | None:
        """Both together; None where they disagree."""
        if not self.values and not self.waiting:
            return other
        if not other.values and not other.waiting:
            return self
        mine, theirs = self.values, other.values
        if any(mine[name] != theirs[name] for name in mine.keys() & theirs.keys()):
            return None
        return _settle({**mine, **theirs}, (*self.waiting, *other.waiting))


UNBOUND: Final = Bindings({})


def bind(
    predicates: Iterable[Predicate],
    attributes: Mapping[str, Value | Variable],
    strict: bool = False,
) -> Bindings | None:
    """None unless every predicate is true."""
    bound: dict[str, Value] = {}
    waiting: list[PendingComparison] = []
    for attribute, operator, operand in predicates:
        value = attributes.get(attribute)
        if value is None or isinstance(value, Variable):
            return None
        if isinstance(operand, Variable):
            if not matches_type(value, operand, strict):
                return None
            if operator in BINDING:
                if bound.setdefault(operand.name, value) != value:
                    return None
            elif operator is not Operator.PRESENT:
                waiting.append(PendingComparison(value, operator, operand.name))
        elif not comparison_holds(value, operator, operand, strict):
            return None
    if not bound and not waiting:
        return UNBOUND
    return _settle(bound, tuple(waiting))


def comparison_holds(
    value: Value, operator: Operator, operand: Value, strict: bool = False
) -> bool:
    """Whether one predicate is true of a value; of one that has another type it is not."""
    if isinstance(value, str) != isinstance(operand, str):
        return False
    if strict and isinstance(operand, int) and not isinstance(value, int):
        return False
    return COMPARISONS[operator](value, operand)


def _settle(values: dict[str, Value], waiting: tuple[PendingComparison, ...]) -> Bindings | None:
    """Decide the comparisons whose variables are known."""
    still = []
    for comparison in waiting:
        value, operator, variable = comparison
        if variable not in values:
            still.append(comparison)
        elif not comparison_holds(value, operator, values[variable]):
            return None
    return Bindings(values, tuple(still))
