"""Queries about past publications over the overlay, and their results.

A query is a subscription to class `historic`: `subclass` is the class of the publications,
`_query_id` identifies the query, `_start_time` and `_end_time` may limit it, and the other
predicates are those of an ordinary subscription. Results repeat these attributes, so they satisfy
the query, and never an ordinary subscription.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from penstock.content import (
    Operator,
    Predicate,
    Publication,
    Subscription,
    Variable,
    VariableType,
)
from penstock.content.messages import Value
from penstock.content.parser import parse_time
from penstock.core.errors import PreconditionFailed

HISTORIC_CLASS: Final = "historic"
SUBCLASS_ATTRIBUTE: Final = "subclass"
QUERY_ID_ATTRIBUTE: Final = "_query_id"
START_TIME_ATTRIBUTE: Final = "_start_time"
END_TIME_ATTRIBUTE: Final = "_end_time"
#: Attributes that identify a query, and are in all its results.
QUERY_ATTRIBUTES: Final = (
    SUBCLASS_ATTRIBUTE,
    QUERY_ID_ATTRIBUTE,
    START_TIME_ATTRIBUTE,
    END_TIME_ATTRIBUTE,
)


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Past publications that satisfy `wanted`; both times are exclusive."""

    wanted: Subscription
    after: datetime | None = None
    before: datetime | None = None
    query_attributes: dict[str, Value] = field(default_factory=dict)  #: repeated in results


def parse_query(subscription: Subscription) -> HistoryQuery | None:
    """None if the subscription is not a query. Raises `LanguageError` for an invalid time, and
    `PreconditionFailed` for a query without id or class."""
    if subscription.class_name != HISTORIC_CLASS:
        return None
    query_attributes: dict[str, Value] = {}
    predicates: list[Predicate] = []
    for predicate in subscription.predicates:
        if predicate.attribute in QUERY_ATTRIBUTES:
            query_attributes[predicate.attribute] = _value(predicate)
        else:
            predicates.append(predicate)
    for needed in (SUBCLASS_ATTRIBUTE, QUERY_ID_ATTRIBUTE):
        if needed not in query_attributes:
            raise PreconditionFailed(f"a query of class {HISTORIC_CLASS} needs [{needed},eq,…]")
    after, before = (
        _time(query_attributes.get(name)) for name in (START_TIME_ATTRIBUTE, END_TIME_ATTRIBUTE)
    )
    wanted = Subscription(str(query_attributes[SUBCLASS_ATTRIBUTE]), tuple(predicates))
    return HistoryQuery(wanted, after, before, query_attributes)


def answer_publication(query: HistoryQuery, found: Publication) -> Publication:
    """A past publication as a result of a query."""
    attributes = {
        name: value for name, value in found.attributes.items() if name not in QUERY_ATTRIBUTES
    }
    return Publication(HISTORIC_CLASS, {**query.query_attributes, **attributes})


def sample_publication(content: Subscription | Publication) -> Publication:
    """A publication with the attributes that results can have, to infer advertisements from. For a
    subscription it has an attribute of the right type for each predicate."""
    attributes: dict[str, Value | Variable] = {}
    if isinstance(content, Publication):
        attributes |= content.attributes
    else:
        for attribute, _, operand in content.predicates:
            kind = operand.kind if isinstance(operand, Variable) else None
            text = kind is VariableType.STRING if kind else isinstance(operand, str)
            attributes[attribute] = "" if text else 0
    return Publication(HISTORIC_CLASS, {**attributes, **dict.fromkeys(QUERY_ATTRIBUTES, "")})


def _value(predicate: Predicate) -> Value:
    is_equality = predicate.operator in (Operator.EQ, Operator.EQUAL)
    if not is_equality or isinstance(predicate.operand, Variable):
        raise PreconditionFailed(f"{predicate.attribute} needs the operator eq and a value")
    return predicate.operand


def _time(value: Value | None) -> datetime | None:
    return None if value is None else parse_time(str(value))
