"""Composite bindings of a content exchange: messages that are wanted together.

A composite is complete with some message; then that one and those that waited for it go to the
destination, in the order they came. What waits does so in memory, within the binding's bounds: a
restart forgets it, and messages too large for memory are not waited for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

from penstock.broker.contract import Message
from penstock.broker.destinations import TAKEN, Binding, Exchange, Sink
from penstock.content.composite import Bound, Composites, Policy
from penstock.content.messages import Composite, Publication
from penstock.core.errors import PreconditionFailed


class Completion:
    """A sink for the message that completed something: it takes what had waited along."""

    __slots__ = ("_destination", "_messages", "name")

    def __init__(self, destination: Sink | Exchange, messages: list[Message]) -> None:
        self.name = destination.name
        self._destination = destination
        self._messages = messages

    def push(self, message: Message) -> int:
        outcome = TAKEN
        for one in self._messages:
            outcome |= give(self._destination, one)
        return outcome


def give(destination: Sink | Exchange, message: Message) -> int:
    """TAKEN, LOGGED or REFUSED, as one sink says or all behind an exchange."""
    if getattr(destination, "kind", "") == "exchange":
        return cast(Exchange, destination).accept(message)
    return cast(Sink, destination).push(message)


class CompositeBindings:
    def __init__(self) -> None:
        self._composites: Composites[Binding] = Composites()

    def __bool__(self) -> bool:
        return len(self._composites) > 0

    def add(self, binding: Binding, composite: Composite) -> None:
        self._composites.insert(binding, composite, *terms_of(binding.arguments))

    def remove(self, binding: Binding) -> None:
        self._composites.remove(binding)

    def completed(
        self, publication: Publication, message: Message, plain: Iterable[Sink | Exchange]
    ) -> list[Completion]:
        """What a message completes, without itself where it goes anyway."""
        if message.spool is not None or message.more:
            return []
        found = self._composites.match(replace(publication, payload=message))
        gathered: dict[Sink | Exchange, dict[Message, None]] = {}
        for binding, matches in found.items():
            parts = gathered.setdefault(binding.destination, {})
            for match in matches:
                parts.update(dict.fromkeys(one.payload for one in match))
        for destination in plain:
            gathered.get(destination, {}).pop(message, None)
        return [Completion(where, list(parts)) for where, parts in gathered.items() if parts]


def terms_of(arguments: dict[str, Any]) -> tuple[Policy, Bound]:
    """How long messages count and how often, as a binding's arguments say."""
    try:
        policy = Policy(arguments.get("x-policy", Policy.REMAIN.value))
        seconds = arguments.get("x-seconds")
        bound = Bound(int(arguments.get("x-size", Bound().size)), seconds and float(seconds))
    except (TypeError, ValueError) as error:
        words = ", ".join(policy.value for policy in Policy)
        raise PreconditionFailed(
            f"a composite binding's 'x-policy' is one of {words}, its 'x-size' a number from 1, "
            f"its 'x-seconds' a number: {error}"
        ) from None
    return policy, bound
