"""Evaluation of predicates against a publication, with variable bindings.

With `eq` and `=`, a variable binds the value, the same one everywhere. With another operator the
value is compared with the variable's value once that is bound, in the same publication or in
another one of a composite match. A variable that is never bound only requires its type.
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
    """A comparison with an unbound variable."""

    value: Value
    operator: Operator
    variable: str


@dataclass(frozen=True, slots=True)
class Bindings:
    values: Mapping[str, Value]
    pending: tuple[PendingComparison, ...] = ()

    def merge(self, other: Bindings) -> Bindings | None:
        """Both; None if they contradict each other."""
        if not self.values and not self.pending:
            return other
        if not other.values and not other.pending:
            return self
        mine, theirs = self.values, other.values
        if any(mine[name] != theirs[name] for name in mine.keys() & theirs.keys()):
            return None
        return _settle({**mine, **theirs}, (*self.pending, *other.pending))


UNBOUND: Final = Bindings({})


def bind(
    predicates: Iterable[Predicate],
    attributes: Mapping[str, Value | Variable],
    strict: bool = False,
) -> Bindings | None:
    bound: dict[str, Value] = {}
    pending: list[PendingComparison] = []
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
                pending.append(PendingComparison(value, operator, operand.name))
        elif not comparison_holds(value, operator, operand, strict):
            return None
    if not bound and not pending:
        return UNBOUND
    return _settle(bound, tuple(pending))


def comparison_holds(
    value: Value, operator: Operator, operand: Value, strict: bool = False
) -> bool:
    """Whether a predicate holds; False for values of another type."""
    if isinstance(value, str) != isinstance(operand, str):
        return False
    if strict and isinstance(operand, int) and not isinstance(value, int):
        return False
    return COMPARISONS[operator](value, operand)


def _settle(values: dict[str, Value], pending: tuple[PendingComparison, ...]) -> Bindings | None:
    """Evaluate the comparisons whose variables are bound."""
    still = []
    for comparison in pending:
        value, operator, variable = comparison
        if variable not in values:
            still.append(comparison)
        elif not comparison_holds(value, operator, values[variable]):
            return None
    return Bindings(values, tuple(still))
