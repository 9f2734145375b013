"""Composite subscriptions across brokers.

A composite is kept whole by the broker of its client; each part, `B1-M7-s0` and so on, travels as a
subscription of its own, and publications that satisfy parts are joined here. Where composites are
split (`rules.split`), one goes on whole while all its parts lead to the same neighbour, and is
joined where the ways divide; what it joined then travels back by the composite's name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from penstock.content.composite import Bound, Composites, Policy
from penstock.content.messages import Composite, Publication
from penstock.content.printing import print_filter
from penstock.content.reading import parse_composite
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.overlay.exits import Exits
from penstock.overlay.neighbours import Clock
from penstock.overlay.rules import Rules
from penstock.overlay.subscribing import Subscribing, several
from penstock.overlay.tables import Tables, Wanted
from penstock.overlay.undoing import undoing
from penstock.wire.padres.envelope import Envelope, Kind

#: In front of a composite's id: the tree of what was joined for it.
JOINED: Final = "&"


class Joined:
    """A composite subscription of a hop's."""

    __slots__ = ("envelope", "hop", "message", "parts", "passed_to")

    def __init__(self, envelope: Envelope, message: Composite, hop: str) -> None:
        self.envelope = envelope
        self.message = message
        self.hop = hop
        self.parts: list[Wanted] = []  #: here, if it is joined here
        self.passed_to = ""  #: the neighbour that joins it, or passes it on


class Together:
    def __init__(
        self, rules: Rules, tables: Tables, exits: Exits, subscribing: Subscribing, clock: Clock
    ) -> None:
        self._rules = rules
        self._tables = tables
        self._exits = exits
        self._subscribing = subscribing
        self._composites: Composites[str] = Composites(strict=rules.strict, clock=clock)
        self.joined: dict[str, Joined] = {}

    def subscribe(self, hop: str, envelope: Envelope) -> bool:
        """Whether it is news."""
        if envelope.id in self.joined:
            return False
        message = parse_composite(envelope.text, several=several(envelope))
        policy, bound = _options(envelope)
        one = Joined(envelope, message, hop)
        onward = self._onward(one) if self._rules.split else ""
        self.joined[envelope.id] = one
        if onward:
            self._pass(one, onward)
        else:
            self._join(one, policy, bound)
        return True

    def unsubscribe(self, hop: str, envelope: Envelope) -> None:
        one = self.joined.get(envelope.text)
        if one is None or one.hop != hop:
            if hop in self._exits.neighbours:
                return
            raise NotFound(f"there is no composite subscription {envelope.text} of {hop}")
        self.remove(one)

    def remove(self, one: Joined) -> None:
        del self.joined[one.envelope.id]
        self._part(one)

    def flush(self) -> None:
        """Forget what waits for partners."""
        for one in self.joined.values():
            if not one.passed_to:
                self._composites.remove(one.envelope.id)
                self._composites.insert(one.envelope.id, one.message, *_options(one.envelope))

    # Joining here, or further on.

    def _join(self, one: Joined, policy: Policy, bound: Bound) -> None:
        identity = one.envelope.id
        self._composites.insert(identity, one.message, policy, bound)
        for number, part in enumerate(one.message.parts()):
            envelope = replace(
                one.envelope,
                kind=Kind.SUBSCRIBE,
                id=f"{identity}-s{number}",
                text=print_filter(part),
                tree="",
            )
            wanted = Wanted(envelope, part, one.hop, None, identity)
            one.parts.append(wanted)
            self._subscribing.add(wanted)

    def _pass(self, one: Joined, onward: str) -> None:
        one.passed_to = onward
        self._exits.emit(onward, one.envelope)

    def _part(self, one: Joined) -> None:
        """Neither here nor further on."""
        if one.passed_to:
            self._exits.emit(one.passed_to, undoing(one.envelope))
            one.passed_to = ""
        else:
            self._composites.remove(one.envelope.id)
            for wanted in one.parts:
                self._subscribing.remove(wanted)
            one.parts.clear()

    def _onward(self, one: Joined) -> str:
        """The neighbour that all publications for all parts come from, if there is one."""
        hops = set()
        for part in one.message.parts():
            offers = {offer.hop for offer in self._tables.offering(part)}
            if not offers:
                return ""
            hops |= offers
        if len(hops) != 1:
            return ""
        only = hops.pop()
        return only if only in self._exits.neighbours and only != one.hop else ""

    def reconsider(self) -> None:
        """Advertisements have come or gone: ways may divide elsewhere now."""
        if not self._rules.split:
            return
        for one in list(self.joined.values()):
            onward = self._onward(one)
            if onward != one.passed_to:
                self._part(one)
                if onward:
                    self._pass(one, onward)
                else:
                    self._join(one, *_options(one.envelope))

    # Publications.

    def match(self, publication: Publication) -> Iterable[tuple[str, Envelope]]:
        """What a publication completes: hops, and what each is to have, in order.

        A publication that is part of several matches for a hop goes there once; the more urgent
        first, and of equals the older.
        """
        given: dict[tuple[str, str, str], tuple[str, Envelope]] = {}
        for identity, matches in self._composites.match(publication).items():
            one = self.joined[identity]
            away = one.hop in self._exits.neighbours
            for match in matches:
                for each in match:
                    envelope: Envelope = each.payload
                    if away:
                        envelope = replace(envelope, tree=JOINED + identity, only=())
                    given.setdefault((one.hop, envelope.id, envelope.tree), (one.hop, envelope))
        return sorted(given.values(), key=lambda one: (one[1].priority, one[1].time, one[1].id))

    def pass_back(self, envelope: Envelope) -> tuple[str, Envelope] | None:
        """Where something that was joined further on goes next."""
        one = self.joined.get(envelope.tree[len(JOINED) :])
        if one is None:
            return None
        if one.hop not in self._exits.neighbours:
            envelope = replace(envelope, tree="")
        return one.hop, envelope


def _options(envelope: Envelope) -> tuple[Policy, Bound]:
    options = dict(envelope.options)
    try:
        policy = Policy(options.get("policy", Policy.REMAIN.value))
        seconds = options.get("seconds")
        bound = Bound(int(options.get("size", 1000)), None if seconds is None else float(seconds))
    except ValueError as error:
        raise PreconditionFailed(f"a composite cannot be kept so: {error}") from None
    return policy, bound
