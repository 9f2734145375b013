"""Formats messages as text, which the parser reads as an equal message.

Class names are bare, text is in `"` with inner `"` doubled, numbers are plain. Text that would
parse as a variable, or begins with `$$`, gets a `$` in front.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.content.messages import (
    CompositeSubscription,
    Expression,
    Filter,
    Join,
    Operand,
    Predicate,
    Publication,
    Variable,
)
from penstock.content.parser import format_time

_NAME: Final = re.compile(r"[A-Za-z_:/][A-Za-z0-9_:/-]*", re.ASCII)
#: Text that needs an additional `$`.
AMBIGUOUS: Final = re.compile(r"\$(?:\$|[SIF]\$[A-Za-z_][A-Za-z0-9_-]*\Z)", re.ASCII)


def format_message(message: Filter | Publication | CompositeSubscription) -> str:
    if isinstance(message, Publication):
        return format_publication(message)
    if isinstance(message, CompositeSubscription):
        return f"{{{_expression(message.expression)}}}"
    return format_filter(message)


def format_filter(message: Filter) -> str:
    parts = [f"[class,eq,{_class(message.class_name)}]", *map(format_predicate, message.predicates)]
    return ",".join(parts)


def format_predicate(predicate: Predicate) -> str:
    attribute, operator, operand = predicate
    return f"[{_attribute(attribute)},{operator.value},{format_operand(operand)}]"


def format_publication(message: Publication) -> str:
    parts = [f"[class,{_class(message.class_name)}]"]
    for name, value in message.attributes.items():
        parts.append(f"[{_attribute(name)},{format_operand(value)}]")
    time = f"{format_time(message.time)};" if message.time is not None else ""
    return f"{','.join(parts)};{time}"


def format_operand(operand: Operand) -> str:
    if isinstance(operand, str):
        escaped = f"${operand}" if AMBIGUOUS.match(operand) else operand
        return '"' + escaped.replace('"', '""') + '"'
    if isinstance(operand, Variable):
        return f"${operand.kind.value}${operand.name}"
    return repr(operand)


def _expression(node: Expression) -> str:
    if isinstance(node, Join):
        left, right = _term(node.left), _term(node.right)
        return f"{left}{node.joining.value}{right}"
    return _term(node)


def _term(node: Expression) -> str:
    inside = _expression(node) if isinstance(node, Join) else format_filter(node)
    return f"{{{inside}}}"


def _class(name: str) -> str:
    return name if _NAME.fullmatch(name) else format_operand(name)


def is_name(text: str) -> bool:
    """Whether it is a valid attribute name."""
    return _NAME.fullmatch(text) is not None


def _attribute(name: str) -> str:
    if not is_name(name):
        raise ValueError(f"{name!r} is not a valid attribute name")
    return name
