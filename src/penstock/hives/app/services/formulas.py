"""Whether a formula of a metric can be meant: figures of a hive's days, numbers, and arithmetic.

    visits / deal_redemptions

What it evaluates to is the nights' affair; here it is only read, as an expression of Python of
which nearly nothing is allowed.
"""

from __future__ import annotations

import ast
from typing import Final

from penstock.hives.app.domain.errors import Fault, Invalid

#: Series by day of a hive that a formula may name.
SERIES: Final = frozenset(
    {
        *("visits", "entries", "exits", "peak", "mean_occupancy", "mean_percent", "coverage"),
        *("views", "searches", "favourites", "deal_opens", "deal_redemptions"),
        *("feedback", "sentiment"),
    }
)
FUNCTIONS: Final = frozenset({"min", "max", "abs"})
LONGEST: Final = 300
_DEEPEST: Final = 30
_NODES: Final = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.USub),
    *(ast.Constant, ast.Name, ast.Load, ast.Call),
)


def check_formula(text: str) -> None:
    """Raises `Invalid`, with what is wrong."""
    if len(text) > LONGEST:
        raise _wrong(f"is at most {LONGEST} letters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _wrong("is no formula; one would be visits / peak") from None
    _check(tree, 0)


def _check(node: ast.AST, depth: int) -> None:
    if depth > _DEEPEST:
        raise _wrong("is nested too deep")
    if not isinstance(node, _NODES):
        raise _wrong("has only numbers, names of series, + - * / and brackets")
    if isinstance(node, ast.Constant) and (
        isinstance(node.value, bool) or not isinstance(node.value, int | float)
    ):
        raise _wrong("has only numbers and names of series")
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS or node.keywords:
            raise _wrong(f"may call {', '.join(sorted(FUNCTIONS))} only")
        for argument in node.args:
            _check(argument, depth + 1)
        return
    if isinstance(node, ast.Name) and node.id not in SERIES:
        raise _wrong(f"{node.id!r} is none of {', '.join(sorted(SERIES))}")
    for each in ast.iter_child_nodes(node):
        _check(each, depth + 1)


def _wrong(reason: str) -> Invalid:
    return Invalid("no such formula", [Fault("formula", reason)])
