"""Questions about the past, as the overlay carries them, and the answers to them.

A question is a subscription to class `historic`: `subclass` is the class that is asked about,
`_query_id` names the question, `_start_time` and `_end_time` may bound it, and all else is said as
of the present. Answers repeat what names the question, so that they satisfy the subscription, and
nobody who asked for the present alone ever sees one.
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
#: What names a question, and stands in every answer to it.
QUERY_ATTRIBUTES: Final = (
    SUBCLASS_ATTRIBUTE,
    QUERY_ID_ATTRIBUTE,
    START_TIME_ATTRIBUTE,
    END_TIME_ATTRIBUTE,
)


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Which publications of the past: satisfying this, after and before (not at) those times."""

    wanted: Subscription
    after: datetime | None = None
    before: datetime | None = None
    query_attributes: dict[str, Value] = field(default_factory=dict)  #: what answers repeat


def parse_query(subscription: Subscription) -> HistoryQuery | None:
    """The question in a subscription; None if it asks for nothing that was kept.

    Raises `LanguageError` for a time that cannot be read, and `PreconditionFailed` for a question
    without a name or a class.
    """
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
            raise PreconditionFailed(f"a question about the past needs [{needed},eq,…]")
    after, before = (
        _time(query_attributes.get(name)) for name in (START_TIME_ATTRIBUTE, END_TIME_ATTRIBUTE)
    )
    wanted = Subscription(str(query_attributes[SUBCLASS_ATTRIBUTE]), tuple(predicates))
    return HistoryQuery(wanted, after, before, query_attributes)


def answer_publication(query: HistoryQuery, found: Publication) -> Publication:
    """A publication of the past as the answer to a question."""
    attributes = {
        name: value for name, value in found.attributes.items() if name not in QUERY_ATTRIBUTES
    }
    return Publication(HISTORIC_CLASS, {**query.query_attributes, **attributes})


def sample_publication(content: Subscription | Publication) -> Publication:
    """A publication with the attributes that answers can have, for advertisements made of it.

    Of a subscription it has one attribute for each predicate, of the type that is compared.
    """
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
    exactly = predicate.operator in (Operator.EQ, Operator.EQUAL)
    if not exactly or isinstance(predicate.operand, Variable):
        raise PreconditionFailed(f"{predicate.attribute} has to be said exactly, with eq")
    return predicate.operand


def _time(value: Value | None) -> datetime | None:
    return None if value is None else parse_time(str(value))
