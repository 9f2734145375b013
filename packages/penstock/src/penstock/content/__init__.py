"""Content-based routing: publications, subscriptions and advertisements.

    >>> from penstock.content import parse_publication, parse_subscription
    >>> from penstock.content.matching import Matcher
    >>> matcher = Matcher()
    >>> matcher.insert("cheap", parse_subscription("[class,eq,stock],[price,<,50]"))
    >>> matcher.match(parse_publication("[class,stock],[symbol,IBM],[price,45.5];"))
    ['cheap']

A library without I/O: the language and its relations here, indexes in `matching`, composite
subscriptions in `composite`, covering for routers in `covering`. See `docs/content.md`.
"""

from penstock.content.errors import DuplicateId, LanguageError, UnknownId
from penstock.content.formatter import format_message
from penstock.content.messages import (
    Advertisement,
    CompositeSubscription,
    Operator,
    Predicate,
    Publication,
    Subscription,
    Variable,
    VariableType,
)
from penstock.content.parser import (
    parse_advertisement,
    parse_composite,
    parse_publication,
    parse_subscription,
)
from penstock.content.relations import (
    conforms,
    covers,
    covers_advertisement,
    intersects,
    satisfies,
)

__all__ = [
    "Advertisement",
    "CompositeSubscription",
    "DuplicateId",
    "LanguageError",
    "Operator",
    "Predicate",
    "Publication",
    "Subscription",
    "UnknownId",
    "Variable",
    "VariableType",
    "conforms",
    "covers",
    "covers_advertisement",
    "format_message",
    "intersects",
    "parse_advertisement",
    "parse_composite",
    "parse_publication",
    "parse_subscription",
    "satisfies",
]
