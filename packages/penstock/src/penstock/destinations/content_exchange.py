"""Content: what a message says decides, by subscriptions in the content language.

A binding has its subscription in the argument `x-subscription`, a composite one in braces; or it
takes all that comes, with `x-all`. What a message says is `publications.py`'s to know; one without
a class goes nowhere. A text that is not in the language is refused with the position of the
mistake, be it a binding's or a message's. To topic permissions a class is a topic, and everything
is `#`.

One such exchange of a virtual host may share its publications with the rest of a content space: a
`ContentGateway` hears of its bindings, and of every message it routes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any, Protocol, cast
from weakref import finalize

from penstock.broker.contract import ACCEPTED, Binding, Exchange, Message, Sink
from penstock.broker.spool import Spool
from penstock.content.composite import CompositeMatcher, ConsumptionPolicy, RetentionLimit
from penstock.content.matching import Matcher
from penstock.content.messages import CompositeSubscription, Publication, Subscription
from penstock.content.parser import parse_composite, parse_subscription
from penstock.core.errors import PreconditionFailed
from penstock.destinations.publications import decode_publication


class ContentGateway(Sink, Protocol):
    """The way from an exchange to others who speak the language."""

    def bound(self, binding: Binding, wanted: list[Subscription]) -> None:
        """The exchange wants what satisfies any of these."""

    def unbound(self, binding: Binding) -> None: ...


class ContentExchangeRouter:
    keyed = False
    uses_topic_permissions = False  #: the class is, and not the routing key

    def __init__(self) -> None:
        self._bound: Matcher[Binding] = Matcher()
        self._all: dict[Binding, None] = {}
        self._composites = CompositeBindings()
        self._gateway: ContentGateway | None = None
        self._said: tuple[Message | None, Publication | None] = (None, None)
        self._completed: tuple[Message | None, list[CompositeMatch]] = (None, [])

    # Bindings.

    def check(self, binding: Binding) -> None:
        if isinstance(_wanted(binding.arguments), CompositeSubscription):
            composite_policy(binding.arguments)

    def add(self, binding: Binding) -> None:
        wanted = _wanted(binding.arguments)
        if self._gateway is not None and wanted is not None:  # it may refuse
            self._gateway.bound(binding, _parts(wanted))
        if wanted is None:
            self._all[binding] = None
        elif isinstance(wanted, CompositeSubscription):
            self._composites.add(binding, wanted)
        else:
            self._bound.insert(binding, wanted)

    def remove(self, binding: Binding) -> None:
        wanted = _wanted(binding.arguments)
        if wanted is None:
            del self._all[binding]
        elif isinstance(wanted, CompositeSubscription):
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
            publication = decode_publication(message)
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
    def gateway(self) -> ContentGateway | None:
        return self._gateway

    def open(self, gateway: ContentGateway, bindings: Iterable[Binding]) -> None:
        """From now on others take part; the gateway hears of the bindings there are."""
        self._gateway = gateway
        for binding in bindings:
            wanted = _wanted(binding.arguments)
            if wanted is not None:
                gateway.bound(binding, _parts(wanted))


def _wanted(arguments: dict[str, Any]) -> Subscription | CompositeSubscription | None:
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


def _parts(wanted: Subscription | CompositeSubscription) -> list[Subscription]:
    return list(wanted.parts()) if isinstance(wanted, CompositeSubscription) else [wanted]


# Composite bindings of a content exchange: messages that are wanted together.
#
# A composite is complete with some message; then that one and those that waited for it go to the
# destination, in the order they came. What waits does so in memory, within the binding's bounds,
# but for the bodies of large messages, which are files; a restart forgets it.


class CompositeMatch:
    """A sink for the message that completed something: it takes what had waited along."""

    __slots__ = ("_destination", "_messages", "name")

    def __init__(self, destination: Sink | Exchange, messages: list[Message]) -> None:
        self.name = destination.name
        self._destination = destination
        self._messages = messages

    def push(self, message: Message) -> int:
        outcome = ACCEPTED
        for one in self._messages:
            outcome |= push_to_destination(self._destination, one)
        return outcome


def push_to_destination(destination: Sink | Exchange, message: Message) -> int:
    """TAKEN, LOGGED or REFUSED, as one sink says or all behind an exchange."""
    if getattr(destination, "kind", "") == "exchange":
        return cast(Exchange, destination).accept(message)
    return cast(Sink, destination).push(message)


class CompositeBindings:
    def __init__(self) -> None:
        self._composites: CompositeMatcher[Binding] = CompositeMatcher()
        self._numbers = count(1)

    def __bool__(self) -> bool:
        return len(self._composites) > 0

    def add(self, binding: Binding, composite: CompositeSubscription) -> None:
        self._composites.insert(binding, composite, *composite_policy(binding.arguments))

    def remove(self, binding: Binding) -> None:
        self._composites.remove(binding)

    def completed(
        self, publication: Publication, message: Message, plain: Iterable[Sink | Exchange]
    ) -> list[CompositeMatch]:
        """What a message completes, without itself where it goes anyway."""
        part = message if message.spool is None else self._resting(message, message.spool)
        found = self._composites.match(replace(publication, payload=part))
        gathered: dict[Sink | Exchange, dict[Message, None]] = {}
        for binding, matches in found.items():
            parts = gathered.setdefault(binding.destination, {})
            for match in matches:
                parts.update(dict.fromkeys(one.payload for one in match))
        for destination in plain:
            gathered.get(destination, {}).pop(part, None)
        return [CompositeMatch(where, list(parts)) for where, parts in gathered.items() if parts]

    def _resting(self, message: Message, spool: Spool) -> Message:
        """A large message that may wait long: its body under a name of its own, and not opened
        before it is read, for there are fewer descriptors than messages may wait."""
        path = spool.path.with_name(f"{spool.path.name}-{id(self):x}-{next(self._numbers)}")
        spool.link(path)
        resting = Message(message.route, message.header, message.body, message.flags)
        resting.spool = Spool(path, owned=False)
        finalize(resting.spool, path.unlink, missing_ok=True).atexit = False
        return resting


def composite_policy(arguments: dict[str, Any]) -> tuple[ConsumptionPolicy, RetentionLimit]:
    """How long messages count and how often, as a binding's arguments say."""
    try:
        policy = ConsumptionPolicy(arguments.get("x-policy", ConsumptionPolicy.REMAIN.value))
        seconds = arguments.get("x-seconds")
        bound = RetentionLimit(
            int(arguments.get("x-size", RetentionLimit().size)), seconds and float(seconds)
        )
    except (TypeError, ValueError) as error:
        words = ", ".join(policy.value for policy in ConsumptionPolicy)
        raise PreconditionFailed(
            f"a composite binding's 'x-policy' is one of {words}, its 'x-size' a number from 1, "
            f"its 'x-seconds' a number: {error}"
        ) from None
    return policy, bound
