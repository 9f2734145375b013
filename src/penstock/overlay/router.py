"""The router of one broker: messages in from hops, messages out to hops.

It knows no sockets, no disk and no clock but the one it is given: the same router runs in a broker,
in the simulation of a hundred of them and in tests. `advertising.py`, `subscribing.py`,
`together.py` and `publishing.py` are what it does with each kind of message; here hops come and go,
messages get their ids, and neighbours are told what they missed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic, perf_counter, time
from typing import Protocol

from penstock.broker.routing import Hop, Receipt
from penstock.content.fast import LastRead
from penstock.content.times import EARLIEST, LATEST
from penstock.core.errors import NotAllowed
from penstock.overlay.advertising import Advertising
from penstock.overlay.exits import Exits
from penstock.overlay.neighbours import Clock, Line, Neighbour
from penstock.overlay.outlet import advertisements_outlet
from penstock.overlay.publishing import Publishing
from penstock.overlay.requests import Requests
from penstock.overlay.rules import Rules
from penstock.overlay.subscribing import Subscribing, copy_along
from penstock.overlay.tables import Tables
from penstock.overlay.together import Together
from penstock.overlay.undoing import UNDOES, undoing
from penstock.wire.padres.envelope import Envelope, Kind


class Memory(Protocol):
    """Keeps what lasting hops ask for."""

    def keep(self, hop: str, envelope: Envelope) -> None: ...

    def forget(self, hop: str, envelope: Envelope) -> None:
        """What this message undoes."""

    def next_number(self) -> int:
        """For an id that was never given before, nor will be again."""


class Router:
    def __init__(
        self,
        broker_id: str,
        rules: Rules | None = None,
        *,
        memory: Memory | None = None,
        clock: Clock = monotonic,
        calendar: Callable[[], float] = time,
        most: int = 0,
    ) -> None:
        """`most` is how much one client may ask for; 0 for any number."""
        self.rules = rules or Rules()
        self.tables = Tables(self.rules.strict)
        self.exits = Exits(broker_id, clock)
        self._calendar = calendar
        self._memory = memory
        self._numbers = _count()
        self._requests = Requests(most)
        subscribing = Subscribing(self.rules, self.tables, self.exits)
        self._subscribing = subscribing
        self._advertising = Advertising(self.rules, self.tables, self.exits, subscribing)
        self.together = Together(self.rules, self.tables, self.exits, subscribing, clock)
        #: What publications say; the last is remembered.
        self.read = LastRead(lambda: datetime.fromtimestamp(calendar(), UTC))
        self._publishing = Publishing(self.rules, self.tables, self.exits, self.together, self.read)
        self.received = dict.fromkeys(Kind, 0)  #: how many of each kind came
        self.match_seconds = 0.0  #: what routing publications took, all in all
        self.trace_all = False
        self._later: deque[Callable[[], None]] = deque()
        self._busy = False

    @property
    def broker_id(self) -> str:
        return self.exits.broker_id

    # Hops.

    @property
    def hops(self) -> dict[str, Hop[Envelope]]:
        return self.exits.hops

    @property
    def neighbours(self) -> dict[str, Neighbour]:
        return self.exits.neighbours

    def attach(self, hop: Hop[Envelope], attentive: bool = False) -> None:
        self.exits.hops[hop.name] = hop
        if attentive:
            self._subscribing.attend(hop.name)

    def detach(self, name: str) -> None:
        hop = self.exits.hops.get(name)
        if hop is None:
            return
        for envelope in list(self.asked_by(name)):
            self._take(name, undoing(envelope), hop.lasting)
        del self.exits.hops[name]
        self.exits.attentive.pop(name, None)
        self._requests.forget(name)
        self.exits.neighbours.pop(name, None)

    def asked_by(self, name: str) -> Iterator[Envelope]:
        """What is here of a hop's, as it came; a subscription once for each tree."""
        for entry in self.tables.wanted.values():
            if entry.hop == name and not entry.composite:
                for tree in sorted(entry.trees or {""}):
                    yield copy_along(entry, tree)
        for joined in self.together.joined.values():
            if joined.hop == name:
                yield joined.envelope
        for offer in self.tables.advertised.values():
            if offer.hop == name:
                yield offer.envelope

    def join(self, name: str, line: Line) -> Neighbour:
        """A neighbour; it is told all there is when its link is up (`tell_all`)."""
        if name == self.broker_id:
            raise NotAllowed(f"{name} cannot be its own neighbour")
        known = self.exits.neighbours.get(name)
        if known is not None:
            known.line = line
            return known
        outlet = advertisements_outlet(self.rules.advertisements, self.rules.strict)
        neighbour = self.exits.neighbours[name] = Neighbour(name, line, outlet)
        self.attach(neighbour)
        for offer in list(self.tables.advertised.values()):
            self._advertising.tell(neighbour, offer)
        return neighbour

    # Messages.

    def receive(self, hop: Hop[Envelope], envelope: Envelope) -> Receipt:
        if self._busy:
            return self._receive(hop, envelope)
        self._busy = True
        try:
            return self._receive(hop, envelope)
        finally:
            try:
                self._catch_up()
            finally:
                self._busy = False

    def later(self, action: Callable[[], None]) -> None:
        """Do something when the message that is being routed has gone its ways."""
        self._later.append(action)
        if not self._busy:
            self._catch_up()

    def _catch_up(self) -> None:
        """What stands behind an action that fails is done with the next message."""
        while self._later:
            self._later.popleft()()

    def _receive(self, hop: Hop[Envelope], envelope: Envelope) -> Receipt:
        name = hop.name
        neighbour = self.exits.neighbours.get(name)
        self.received[envelope.kind] += 1
        if neighbour is not None:
            neighbour.traffic.count(self.exits.clock())
        else:
            envelope = self._stamped(name, envelope)
        if envelope.kind is Kind.PUBLISH:
            checked = hop.checked and self.rules.conformance and neighbour is None
            begun = perf_counter()
            outcome = self._publishing.publish(name, envelope, checked)
            self.match_seconds += perf_counter() - begun
            return Receipt(envelope.id, outcome)
        if neighbour is None and envelope.kind not in UNDOES:
            if hop.lasting and (before := self._requests.before(name, envelope)):
                return Receipt(before)  # it says again what we remember
            if hop.checked:
                self._requests.check(name)
        self._take(name, envelope, hop.lasting)
        return Receipt(envelope.id)

    def recall(self, name: str, envelope: Envelope) -> None:
        """What a hop had asked for before the broker was started."""
        self._take(name, envelope, lasting=False)

    def _take(self, name: str, envelope: Envelope, lasting: bool) -> None:
        kind = envelope.kind
        news = False
        if kind is Kind.ADVERTISE:
            news = self._advertising.advertise(name, envelope)
            self.together.reconsider()
        elif kind is Kind.SUBSCRIBE:
            news = self._subscribing.subscribe(name, envelope)
        elif kind is Kind.COMPOSITE:
            news = self.together.subscribe(name, envelope)
        elif kind is Kind.UNADVERTISE:
            self._advertising.unadvertise(name, envelope)
            self.together.reconsider()
        elif kind is Kind.UNSUBSCRIBE and envelope.text not in self.together.joined:
            self._subscribing.unsubscribe(name, envelope)
        else:
            envelope = replace(envelope, kind=Kind.UNCOMPOSITE)
            self.together.unsubscribe(name, envelope)
        hop = self.exits.hops.get(name)
        if hop is not None and (hop.checked or hop.lasting) and name not in self.exits.neighbours:
            if envelope.kind in UNDOES:
                self._requests.remove(name, envelope.text)
            else:
                self._requests.add(name, envelope)
        if self._memory is not None and lasting:
            if news:
                self._memory.keep(name, envelope)
            elif envelope.kind in UNDOES:
                self._memory.forget(name, envelope)

    def _stamped(self, name: str, envelope: Envelope) -> Envelope:
        """A message that enters the overlay here: what is between brokers is for us to say."""
        number = next(self._numbers) if self._memory is None else self._memory.next_number()
        identity = f"{self.broker_id}-M{number}"
        return replace(
            envelope,
            id=identity,
            trace=envelope.trace or (identity if self.trace_all and name != self.exits.own else ""),
            time=self._time(envelope),
            source=name,
            tree="",
            only=(),
            turns=0,
        )

    def _time(self, envelope: Envelope) -> float:
        """When it was said, if there is such a time: a publication may bring one of its own."""
        if envelope.time and EARLIEST <= envelope.time <= LATEST:
            return envelope.time
        if envelope.kind is Kind.PUBLISH and (said := self.read(envelope.text).time) is not None:
            return said.timestamp()
        return self._calendar()

    # A link that is there, or there again.

    def all_told(self, neighbour: Neighbour) -> Iterator[Envelope]:
        """Everything a neighbour has from here, as it was sent."""
        for offer in (*neighbour.bounded, *neighbour.advertisements.told()):
            yield offer.envelope
        for tree, outlet in neighbour.outlets.items():
            for entry in outlet.told():
                yield copy_along(entry, tree)
        for joined in self.together.joined.values():
            if joined.passed_to == neighbour.name:
                yield joined.envelope

    def tell_all(self, neighbour: Neighbour) -> list[Envelope]:
        """Send it all again; what the neighbour knows already makes no difference to it."""
        told = list(self.all_told(neighbour))
        for envelope in told:
            self.exits.emit(neighbour.name, envelope)
        return told

    def only_these(self, name: str, told: set[tuple[Kind, str, str]]) -> None:
        """A neighbour has told all: what else is here from it, it has undone meanwhile.

        Each is a kind, an id and a tree.
        """
        for envelope in list(self.asked_by(name)):
            if (envelope.kind, envelope.id, envelope.tree) not in told:
                self._take(name, undoing(envelope), lasting=True)


def _count() -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number
