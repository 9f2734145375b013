"""A question in SQL: every predicate a condition, every value a bound parameter.

Numbers are kept exactly, as `numeric`, and texts as their UTF-8 bytes, which are ordered as code
points are and may hold anything. A predicate that compares with a variable asks for presence and
type here; what variables mean together is decided on what was found (`archive.py`).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from psycopg.sql import SQL, Composed

from penstock.content import Kind, Operator, Predicate, Variable
from penstock.content.values import Value
from penstock.history.questions import Question

#: Texts are found by their beginnings: an index cannot hold more of a long one.
INDEXED: Final = 200

_COMPARISONS: Final = {
    Operator.EQ: "=",
    Operator.NEQ: "<>",
    Operator.STR_LT: "<",
    Operator.STR_LE: "<=",
    Operator.STR_GT: ">",
    Operator.STR_GE: ">=",
    Operator.EQUAL: "=",
    Operator.UNEQUAL: "<>",
    Operator.LESS: "<",
    Operator.LESS_EQUAL: "<=",
    Operator.GREATER: ">",
    Operator.GREATER_EQUAL: ">=",
}


def select(question: Question) -> tuple[Composed, list[Any]]:
    """The statement that finds what may be the answer, in the order it was kept."""
    conditions = [SQL("class = %s")]
    parameters: list[Any] = [question.wanted.class_name]
    for sign, time in ((">", question.after), ("<", question.before)):
        if time is not None:
            conditions.append(SQL(f"at {sign} %s"))
            parameters.append(time)
    for predicate in question.wanted.predicates:
        condition, values = _condition(predicate)
        table = "publication_text" if _is_text(predicate) else "publication_number"
        conditions.append(
            SQL(
                f"EXISTS (SELECT FROM {table} held WHERE held.publication_id = publication.id "
                f"AND held.attribute = %s{condition})"
            )
        )
        parameters += [predicate.attribute, *values]
    return (
        SQL(
            "SELECT id, message_id, at, said, payload FROM publication WHERE {} ORDER BY id"
        ).format(SQL(" AND ").join(conditions)),
        parameters,
    )


def held(value: Value) -> Decimal | bytes:
    """A value as the tables hold it, exactly."""
    return value.encode() if isinstance(value, str) else Decimal(value)


def _condition(predicate: Predicate) -> tuple[str, list[Any]]:
    _, operator, operand = predicate
    if isinstance(operand, Variable):
        return (" AND value = trunc(value)" if operand.kind is Kind.INTEGER else ""), []
    if operator is Operator.PRESENT:
        return "", []
    value = held(operand)
    match operator:
        case Operator.PREFIX:
            assert isinstance(value, bytes)
            start = "substring(value FROM 1 FOR %s)"
            return (
                f" AND {_BEGINNING} >= %s AND {start} = %s",
                [value[:INDEXED], len(value), value],
            )
        case Operator.POSTFIX:
            assert isinstance(value, bytes)
            end = "substring(value FROM greatest(length(value) - %s + 1, 1))"
            return f" AND {end} = %s", [len(value), value]
        case Operator.CONTAINS:
            return " AND position(%s IN value) > 0", [value]
        case Operator.EQ:
            assert isinstance(value, bytes)
            return f" AND {_BEGINNING} = %s AND value = %s", [value[:INDEXED], value]
    return f" AND value {_COMPARISONS[operator]} %s", [value]


#: What the index holds of a text.
_BEGINNING: Final = f"substring(value FROM 1 FOR {INDEXED})"


def _is_text(predicate: Predicate) -> bool:
    if isinstance(predicate.operand, Variable):
        return predicate.operand.kind is Kind.STRING
    return isinstance(predicate.operand, str)
