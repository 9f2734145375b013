"""Content: what a message says decides, by subscriptions in the content language.

A binding has its subscription in the argument `x-subscription`, a composite one in braces; or it
takes all that comes, with `x-all`. What a message says is `publications.py`'s to know; one without
a class goes nowhere. A text that is not in the language is refused with the position of the
mistake, be it a binding's or a message's. To topic permissions a class is a topic, and everything
is `#`.

One such exchange of a virtual host may share its publications with the rest of a content space: a
`Gateway` hears of its bindings, and of every message it routes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from penstock.broker.contract import Message
from penstock.broker.destinations import Binding, Exchange, Sink
from penstock.content.matching import Matcher
from penstock.content.messages import Composite, Publication, Subscription
from penstock.content.reading import parse_composite, parse_subscription
from penstock.core.errors import PreconditionFailed
from penstock.drivers.routers.completion import Completion, CompositeBindings, terms_of
from penstock.drivers.routers.publications import publication_of


class Gateway(Sink, Protocol):
    """The way from an exchange to others who speak the language."""

    def bound(self, binding: Binding, wanted: list[Subscription]) -> None:
        """The exchange wants what satisfies any of these."""

    def unbound(self, binding: Binding) -> None: ...


class Content:
    keyed = False
    topical = False  #: the class is, and not the routing key

    def __init__(self) -> None:
        self._bound: Matcher[Binding] = Matcher()
        self._all: dict[Binding, None] = {}
        self._composites = CompositeBindings()
        self._gateway: Gateway | None = None
        self._said: tuple[Message | None, Publication | None] = (None, None)
        self._completed: tuple[Message | None, list[Completion]] = (None, [])

    # Bindings.

    def check(self, binding: Binding) -> None:
        if isinstance(_wanted(binding.arguments), Composite):
            terms_of(binding.arguments)

    def add(self, binding: Binding) -> None:
        wanted = _wanted(binding.arguments)
        if self._gateway is not None and wanted is not None:  # it may refuse
            self._gateway.bound(binding, _parts(wanted))
        if wanted is None:
            self._all[binding] = None
        elif isinstance(wanted, Composite):
            self._composites.add(binding, wanted)
        else:
            self._bound.insert(binding, wanted)

    def remove(self, binding: Binding) -> None:
        wanted = _wanted(binding.arguments)
        if wanted is None:
            del self._all[binding]
        elif isinstance(wanted, Composite):
            self._composites.remove(binding)
        else:
            self._bound.remove(binding)
        if self._gateway is not None and wanted is not None:
            self._gateway.unbound(binding)

    # Messages.

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        publication = self.said(message)
        if publication is None:
            return ()
        found: list[Sink | Exchange] = [
            binding.destination for binding in self._bound.match(publication)
        ]
        if self._all:
            found += self.everything
        if self._composites:
            if self._completed[0] is not message:  # it counts once, however many keys it has
                completed = self._composites.completed(publication, message, found)
                self._completed = (message, completed)
            found += self._completed[1]
        if self._gateway is not None:
            found.append(self._gateway)
        return found

    def said(self, message: Message) -> Publication | None:
        """What a message says; of the last one it is remembered."""
        known, publication = self._said
        if known is not message:
            publication = publication_of(message)
            self._said = (message, publication)
        return publication

    # Topic permissions.

    def topics(self, keys: list[bytes], message: Message) -> Iterable[str]:
        publication = self.said(message)
        return () if publication is None else (publication.class_name,)

    def topics_of(self, key: str, arguments: dict[str, Any]) -> Iterable[str]:
        wanted = _wanted(arguments)
        return ("#",) if wanted is None else {part.class_name for part in _parts(wanted)}

    # Others.

    @property
    def everything(self) -> list[Sink | Exchange]:
        """Where all goes that comes."""
        return [binding.destination for binding in self._all]

    @property
    def gateway(self) -> Gateway | None:
        return self._gateway

    def open(self, gateway: Gateway, bindings: Iterable[Binding]) -> None:
        """From now on others take part; the gateway hears of the bindings there are."""
        self._gateway = gateway
        for binding in bindings:
            wanted = _wanted(binding.arguments)
            if wanted is not None:
                gateway.bound(binding, _parts(wanted))


def _wanted(arguments: dict[str, Any]) -> Subscription | Composite | None:
    """What a binding asks for; None for everything."""
    text = arguments.get("x-subscription")
    if text is None and arguments.get("x-all") is True:
        return None
    if not isinstance(text, str):
        raise PreconditionFailed(
            "a binding to an x-content exchange has its subscription in the argument "
            "'x-subscription', such as [class,eq,stock],[price,<,50]"
        )
    if text.lstrip().startswith("{"):
        return parse_composite(text)
    return parse_subscription(text, several=arguments.get("x-several") is True)


def _parts(wanted: Subscription | Composite) -> list[Subscription]:
    return list(wanted.parts()) if isinstance(wanted, Composite) else [wanted]
