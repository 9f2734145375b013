"""Composite bindings of a content exchange: messages that are wanted together.

A composite is complete with some message; then that one and those that waited for it go to the
destination, in the order they came. What waits does so in memory, within the binding's bounds, but
for the bodies of large messages, which are files; a restart forgets it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any, cast
from weakref import finalize

from penstock.broker.contract import Message
from penstock.broker.destinations import TAKEN, Binding, Exchange, Sink
from penstock.broker.spool import Spool
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
        self._numbers = count(1)

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
        part = message if message.spool is None else self._resting(message, message.spool)
        found = self._composites.match(replace(publication, payload=part))
        gathered: dict[Sink | Exchange, dict[Message, None]] = {}
        for binding, matches in found.items():
            parts = gathered.setdefault(binding.destination, {})
            for match in matches:
                parts.update(dict.fromkeys(one.payload for one in match))
        for destination in plain:
            gathered.get(destination, {}).pop(part, None)
        return [Completion(where, list(parts)) for where, parts in gathered.items() if parts]

    def _resting(self, message: Message, spool: Spool) -> Message:
        """A large message that may wait long: its body under a name of its own, and not opened
        before it is read, for there are fewer descriptors than messages may wait."""
        path = spool.path.with_name(f"{spool.path.name}-{id(self):x}-{next(self._numbers)}")
        spool.link(path)
        resting = Message(message.route, message.header, message.body, message.flags)
        resting.spool = Spool(path, owned=False)
        finalize(resting.spool, path.unlink, missing_ok=True).atexit = False
        return resting


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
