"""Content-based selection: publications, and who wants them by what they say.

    >>> from penstock.content import parse_publication, parse_subscription
    >>> from penstock.content.matching import Matcher
    >>> matcher = Matcher()
    >>> matcher.insert("cheap", parse_subscription("[class,eq,stock],[price,<,50]"))
    >>> matcher.match(parse_publication("[class,stock],[symbol,IBM],[price,45.5];"))
    ['cheap']

A library without I/O: the language and its relations here, `matching` and `composite` beside it,
`covering` and `forwarding` for routers. `docs/content.md` shows all of it.
"""

from penstock.content.errors import DuplicateId, LanguageError, UnknownId
from penstock.content.fast import parse_publication
from penstock.content.messages import (
    Advertisement,
    Composite,
    CompositeUnsubscription,
    Predicate,
    Publication,
    Subscription,
    Unadvertisement,
    Unsubscription,
)
from penstock.content.operators import Operator
from penstock.content.printing import print_message
from penstock.content.reading import (
    parse_advertisement,
    parse_composite,
    parse_subscription,
)
from penstock.content.relations import (
    conforms,
    covers,
    covers_advertisement,
    intersects,
    satisfies,
)
from penstock.content.values import Kind, Variable

__all__ = [
    "Advertisement",
    "Composite",
    "CompositeUnsubscription",
    "DuplicateId",
    "Kind",
    "LanguageError",
    "Operator",
    "Predicate",
    "Publication",
    "Subscription",
    "Unadvertisement",
    "UnknownId",
    "Unsubscription",
    "Variable",
    "conforms",
    "covers",
    "covers_advertisement",
    "intersects",
    "parse_advertisement",
    "parse_composite",
    "parse_publication",
    "parse_subscription",
    "print_message",
    "satisfies",
]
