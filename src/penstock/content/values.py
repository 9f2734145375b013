"""What an attribute can hold and what it can be compared with: values and variables.

A value is a text, a whole number of 64 bits or a finite float. Numbers are of one kind when they
are compared: 5 equals 5.0. Text is ordered by code point. A variable stands for the value that a
publication brings.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import isfinite
from typing import Final, TypeAlias

Number: TypeAlias = int | float
Value: TypeAlias = str | Number

INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1


class Kind(Enum):
    """What a variable may stand for; the value is its letter in the language."""

    STRING = "S"
    INTEGER = "I"  #: a whole number: 5, and 5.0 too unless types are strict
    FLOAT = "F"  #: any number


@dataclass(frozen=True, slots=True)
class Variable:
    kind: Kind
    name: str


Operand: TypeAlias = Value | Variable


def is_number(value: object) -> bool:
    """Whether it is a number of the language; true, false, infinities and NaN are none."""
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and INT_MIN <= value <= INT_MAX


def is_whole(value: Number, strict: bool) -> bool:
    """Whether an integer variable takes it: by its value, or by its type where types are strict."""
    return isinstance(value, int) or (not strict and value.is_integer())


def fits(value: Value, variable: Variable, strict: bool = False) -> bool:
    """Whether a variable can stand for a value."""
    if isinstance(value, str):
        return variable.kind is Kind.STRING
    if variable.kind is Kind.INTEGER:
        return is_whole(value, strict)
    return variable.kind is Kind.FLOAT
