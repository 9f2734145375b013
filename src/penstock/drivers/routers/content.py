"""Content: what a message says decides, by subscriptions in the content language.

A binding has its subscription in the argument `x-subscription`. A message is a publication: its
headers are the attributes, `class` among them; or, with the content type `application/x-padres`,
its body is the text of one. A message without a class goes nowhere. A text that is not in the
language is refused with the position of the mistake, be it a binding's or a message's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from penstock.broker.contract import Message
from penstock.broker.destinations import Binding, Exchange, Sink
from penstock.broker.properties import decode_header
from penstock.content.fast import parse_publication
from penstock.content.matching import Matcher
from penstock.content.messages import Publication, Subscription
from penstock.content.reading import parse_subscription
from penstock.content.values import Value, is_number
from penstock.core.errors import PreconditionFailed

CONTENT_TYPE: Final = "application/x-padres"


class Content:
    keyed = False

    def __init__(self) -> None:
        self._bound: Matcher[Binding] = Matcher()

    def check(self, binding: Binding) -> None:
        _subscription(binding)

    def add(self, binding: Binding) -> None:
        self._bound.insert(binding, _subscription(binding))

    def remove(self, binding: Binding) -> None:
        self._bound.remove(binding)

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        publication = publication_of(message)
        if publication is None:
            return ()
        return [binding.destination for binding in self._bound.match(publication)]


def _subscription(binding: Binding) -> Subscription:
    text = binding.arguments.get("x-subscription")
    if not isinstance(text, str):
        raise PreconditionFailed(
            "a binding to an x-content exchange has its subscription in the argument "
            "'x-subscription', such as [class,eq,stock],[price,<,50]"
        )
    return parse_subscription(text, several=binding.arguments.get("x-several") is True)


def publication_of(message: Message) -> Publication | None:
    """What a message says; None when it says nothing of its class."""
    properties = decode_header(message.header)
    if properties.content_type == CONTENT_TYPE:
        return parse_publication(_text(message))
    headers = properties.headers or {}
    class_name = headers.get("class")
    if not isinstance(class_name, str):
        return None
    return Publication(class_name, attributes_of(headers))


def _text(message: Message) -> str:
    if message.spool is not None:
        raise PreconditionFailed(f"a publication of {message.size} bytes is too long to be read")
    try:
        return message.body.decode()
    except UnicodeDecodeError as error:
        raise PreconditionFailed(f"the publication is not UTF-8: {error}") from None


def attributes_of(headers: Mapping[str, Any]) -> dict[str, Value]:
    """The headers that have a value the language knows.

    What is true or false is a text, decimals are numbers, and so are times: seconds since 1970.
    """
    attributes: dict[str, Value] = {}
    for name, value in headers.items():
        if isinstance(value, bool):
            attributes[name] = "true" if value else "false"
        elif isinstance(value, str) or is_number(value):
            attributes[name] = value
        elif isinstance(value, Decimal):
            attributes[name] = float(value)
        elif isinstance(value, datetime):
            attributes[name] = value.timestamp()
    attributes.pop("class", None)
    return attributes
