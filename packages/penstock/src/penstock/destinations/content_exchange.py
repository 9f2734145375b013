"""The content exchange: routes publications by subscriptions in the content language.

A binding has its subscription in the argument `x-subscription`, a composite one in braces, or
matches everything with `x-all`. Messages without a class are not routed. A text that is not in the
language is refused with the position of the error. For topic permissions, a class is a topic, and
everything is `#`.

One such exchange of a virtual host may share its publications with a content space: a
`ContentGateway` receives its bindings and every routed message.
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
from penstock.content.parser import parse_any_subscription
from penstock.core.errors import PreconditionFailed
from penstock.destinations.publications import decode_publication


class ContentGateway(Sink, Protocol):
    """Connects an exchange with a content space."""

    def bound(self, binding: Binding, wanted: list[Subscription]) -> None:
        """A binding with these subscriptions was added; may refuse it."""

    def unbound(self, binding: Binding) -> None: ...


class ContentExchangeRouter:
    keyed = False
    uses_topic_permissions = False  #: the class is a topic, the routing key is not

    def __init__(self) -> None:
        self._bound: Matcher[Binding] = Matcher()
        self._all: dict[Binding, None] = {}
        self._composites = CompositeBindings()
        self._gateway: ContentGateway | None = None
        self._last_publication: tuple[Message | None, Publication | None] = (None, None)
        self._completed: tuple[Message | None, list[CompositeMatch]] = (None, [])

    # Bindings.

    def check(self, binding: Binding) -> None:
        if isinstance(_wanted(binding.arguments), CompositeSubscription):
            composite_policy(binding.arguments)

    def add(self, binding: Binding) -> None:
        wanted = _wanted(binding.arguments)
        if self._gateway is not None and wanted is not None:  # may refuse
            self._gateway.bound(binding, list(wanted.parts()))
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
        publication = self.publication(message)
        if publication is None:
            return ()
        found: list[Sink | Exchange] = [
            binding.destination for binding in self._bound.match(publication)
        ]
        if self._all:
            found += self.everything
        if self._composites:
            if self._completed[0] is not message:  # once per message, also with several keys
                completed = self._composites.completed(publication, message, found)
                self._completed = (message, completed)
            found += self._completed[1]
        if self._gateway is not None:
            found.append(self._gateway)
        return found

    def publication(self, message: Message) -> Publication | None:
        """Decode a message; the last result is cached."""
        known, publication = self._last_publication
        if known is not message:
            publication = decode_publication(message)
            self._last_publication = (message, publication)
        return publication

    # Topic permissions.

    def topics(self, keys: list[bytes], message: Message) -> Iterable[str]:
        publication = self.publication(message)
        return () if publication is None else (publication.class_name,)

    def topics_of(self, key: str, arguments: dict[str, Any]) -> Iterable[str]:
        wanted = _wanted(arguments)
        return ("#",) if wanted is None else {part.class_name for part in wanted.parts()}

    @property
    def everything(self) -> list[Sink | Exchange]:
        """Destinations of `x-all` bindings."""
        return [binding.destination for binding in self._all]

    @property
    def gateway(self) -> ContentGateway | None:
        return self._gateway

    def open(self, gateway: ContentGateway, bindings: Iterable[Binding]) -> None:
        """Connect the exchange with a gateway, which receives the existing bindings."""
        self._gateway = gateway
        for binding in bindings:
            wanted = _wanted(binding.arguments)
            if wanted is not None:
                gateway.bound(binding, list(wanted.parts()))


def _wanted(arguments: dict[str, Any]) -> Subscription | CompositeSubscription | None:
    """The subscription of a binding; None for everything."""
    text = arguments.get("x-subscription")
    if text is None and arguments.get("x-all") is True:
        return None
    if not isinstance(text, str):
        raise PreconditionFailed(
            "a binding to an x-content exchange has its subscription in the argument "
            "'x-subscription', such as [class,eq,stock],[price,<,50]"
        )
    return parse_any_subscription(text, several=arguments.get("x-several") is True)


class CompositeMatch:
    """A sink that pushes all messages of a composite match."""

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
    """ACCEPTED, LOGGED or REJECTED, of a sink or of all sinks of an exchange."""
    if getattr(destination, "kind", "") == "exchange":
        return cast(Exchange, destination).accept(message)
    return cast(Sink, destination).push(message)


class CompositeBindings:
    """Composite bindings: the message that completes a match is pushed with those before it.

    Partial matches are in memory, within the limits of the binding, and large bodies in files. A
    restart discards them.
    """

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
        """The matches that a message completes, without itself where it is routed anyway."""
        part = message if message.spool is None else self._retained(message, message.spool)
        found = self._composites.match(replace(publication, payload=part))
        gathered: dict[Sink | Exchange, dict[Message, None]] = {}
        for binding, matches in found.items():
            parts = gathered.setdefault(binding.destination, {})
            for match in matches:
                parts.update(dict.fromkeys(one.payload for one in match))
        for destination in plain:
            gathered.get(destination, {}).pop(part, None)
        return [CompositeMatch(where, list(parts)) for where, parts in gathered.items() if parts]

    def _retained(self, message: Message, spool: Spool) -> Message:
        """A copy of a large message with its own link to the body, opened when it is read."""
        path = spool.path.with_name(f"{spool.path.name}-{id(self):x}-{next(self._numbers)}")
        spool.link(path)
        retained = Message(message.route, message.header, message.body, message.flags)
        retained.spool = Spool(path, owned=False)
        finalize(retained.spool, path.unlink, missing_ok=True).atexit = False
        return retained


def composite_policy(arguments: dict[str, Any]) -> tuple[ConsumptionPolicy, RetentionLimit]:
    """Consumption policy and retention limit of a binding."""
    try:
        policy = ConsumptionPolicy(arguments.get("x-policy", ConsumptionPolicy.REMAIN.value))
        seconds = arguments.get("x-seconds")
        bound = RetentionLimit(
            int(arguments.get("x-size", RetentionLimit().size)), seconds and float(seconds)
        )
    except (TypeError, ValueError) as error:
        words = ", ".join(policy.value for policy in ConsumptionPolicy)
        raise PreconditionFailed(
            f"composite binding: 'x-policy' must be one of {words}, 'x-size' a number from 1, "
            f"'x-seconds' a number: {error}"
        ) from None
    return policy, bound
