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

from penstock.content import Kind, Operator, Predicate, Publication, Subscription, Variable
from penstock.content.times import parse_time
from penstock.content.values import Value
from penstock.core.errors import PreconditionFailed

HISTORIC: Final = "historic"
SUBCLASS: Final = "subclass"
QUERY: Final = "_query_id"
START: Final = "_start_time"
END: Final = "_end_time"
#: What names a question, and stands in every answer to it.
NAMING: Final = (SUBCLASS, QUERY, START, END)


@dataclass(frozen=True, slots=True)
class Question:
    """Which publications of the past: satisfying this, after and before (not at) those times."""

    wanted: Subscription
    after: datetime | None = None
    before: datetime | None = None
    naming: dict[str, Value] = field(default_factory=dict)  #: what answers repeat


def question_of(subscription: Subscription) -> Question | None:
    """The question in a subscription; None if it asks for nothing that was kept.

    Raises `LanguageError` for a time that cannot be read, and `PreconditionFailed` for a question
    without a name or a class.
    """
    if subscription.class_name != HISTORIC:
        return None
    naming: dict[str, Value] = {}
    predicates: list[Predicate] = []
    for predicate in subscription.predicates:
        if predicate.attribute in NAMING:
            naming[predicate.attribute] = _value(predicate)
        else:
            predicates.append(predicate)
    for needed in (SUBCLASS, QUERY):
        if needed not in naming:
            raise PreconditionFailed(f"a question about the past needs [{needed},eq,…]")
    after, before = (_time(naming.get(name)) for name in (START, END))
    wanted = Subscription(str(naming[SUBCLASS]), tuple(predicates))
    return Question(wanted, after, before, naming)


def answer_of(question: Question, found: Publication) -> Publication:
    """A publication of the past as the answer to a question."""
    attributes = {name: value for name, value in found.attributes.items() if name not in NAMING}
    return Publication(HISTORIC, {**question.naming, **attributes})


def sample_of(content: Subscription | Publication) -> Publication:
    """A publication with the attributes that answers can have, for advertisements made of it.

    Of a subscription it has one attribute for each predicate, of the type that is compared.
    """
    attributes: dict[str, Value | Variable] = {}
    if isinstance(content, Publication):
        attributes |= content.attributes
    else:
        for attribute, _, operand in content.predicates:
            kind = operand.kind if isinstance(operand, Variable) else None
            text = kind is Kind.STRING if kind else isinstance(operand, str)
            attributes[attribute] = "" if text else 0
    return Publication(HISTORIC, {**attributes, **dict.fromkeys(NAMING, "")})


def _value(predicate: Predicate) -> Value:
    exactly = predicate.operator in (Operator.EQ, Operator.EQUAL)
    if not exactly or isinstance(predicate.operand, Variable):
        raise PreconditionFailed(f"{predicate.attribute} has to be said exactly, with eq")
    return predicate.operand


def _time(value: Value | None) -> datetime | None:
    return None if value is None else parse_time(str(value))
