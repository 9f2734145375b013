"""The operators of predicates: how they are written, what they compare, when they hold."""

from __future__ import annotations

import operator
from collections.abc import Callable
from enum import Enum
from typing import Any, Final


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
HOLDS: Final[dict[Operator, Callable[[Any, Any], bool]]] = {
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
