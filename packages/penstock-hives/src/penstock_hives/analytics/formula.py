"""Formulas of custom metrics: parsed here, evaluated by Spark.

    visits / max(deal_redemptions, 1)

The language is arithmetic over the series below, numbers, `min`, `max` and `abs`, in Python's
syntax. A formula is parsed and checked, never executed. A division by zero gives null.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import PreconditionFailed

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Series, and how days are aggregated over a window.
SERIES: Final[Mapping[str, str]] = {
    "visits": "sum",
    "entries": "sum",
    "exits": "sum",
    "peak": "max",
    "mean_occupancy": "avg",
    "mean_percent": "avg",
    "coverage": "avg",
    "views": "sum",
    "searches": "sum",
    "favourites": "sum",
    "deal_opens": "sum",
    "deal_redemptions": "sum",
    "feedback": "sum",
    "sentiment": "avg",
}
MAX_FORMULA_LENGTH: Final = 300
_MAX_DEPTH: Final = 30


class InvalidFormula(PreconditionFailed):
    """A formula with invalid syntax or an unknown name."""


@dataclass(frozen=True, slots=True)
class Formula:
    text: str
    _root: ast.expr

    @classmethod
    def parse(cls, text: str) -> Formula:
        if len(text) > MAX_FORMULA_LENGTH:
            raise InvalidFormula(
                f"a formula has at most {MAX_FORMULA_LENGTH} characters, got {len(text)}"
            )
        try:
            root = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise InvalidFormula(
                f"{text!r} is not a formula; an example is visits / peak"
            ) from None
        _check(root, 0)
        return cls(text, root)

    @property
    def series(self) -> frozenset[str]:
        names = {node.id for node in ast.walk(self._root) if isinstance(node, ast.Name)}
        return frozenset(names & SERIES.keys())

    def column(self, series: Mapping[str, Column]) -> Column:
        return _column(self._root, series)


def _check(node: ast.AST, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise InvalidFormula(f"the formula is nested deeper than {_MAX_DEPTH} levels")
    match node:
        case ast.Constant(value=value):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidFormula("a formula has only numbers and names of series")
            if abs(value) > 1e15:
                raise InvalidFormula("a number of a formula is at most 1e15")
        case ast.Name(id=name):
            if name not in SERIES:
                raise InvalidFormula(f"unknown series {name!r}; known are {', '.join(SERIES)}")
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            _check(left, depth + 1)
            _check(right, depth + 1)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            _check(operand, depth + 1)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            least, most = _FUNCTIONS[name]
            if not least <= len(arguments) <= most:
                raise InvalidFormula(f"{name} takes {least} to {most} values, got {len(arguments)}")
            for each in arguments:
                _check(each, depth + 1)
        case _:
            raise InvalidFormula(
                "a formula has only numbers, names of series, + - * / and brackets"
            )


#: Least and most arguments of a function.
_FUNCTIONS: Final = {"min": (2, 10), "max": (2, 10), "abs": (1, 1)}


def _divided(left: Column, right: Column) -> Column:
    from pyspark.sql import functions as f

    return left / f.nullif(right, f.lit(0.0))


_OPERATORS: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: _divided,
}


def _column(node: ast.expr, series: Mapping[str, Column]) -> Column:
    from pyspark.sql import functions as f

    match node:
        case ast.Constant(value=int() | float() as value):
            return f.lit(float(value))
        case ast.Name(id=name):
            return series[name].cast("double")
        case ast.BinOp(left=left, op=op, right=right):
            made: Column = _OPERATORS[type(op)](_column(left, series), _column(right, series))
            return made
        case ast.UnaryOp(operand=operand):
            return -_column(operand, series)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            columns = [_column(each, series) for each in arguments]
            if name == "abs":
                return f.abs(columns[0])
            return f.least(*columns) if name == "min" else f.greatest(*columns)
    raise AssertionError("unreachable: formulas are checked when parsed")
