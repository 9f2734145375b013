"""Brokers in one process: their routers, lines between them that carry one message after another,
and a clock that moves when it is told to.

Nothing here waits. `settle` carries messages until none is under way, each line in order, the lines
in an order that a seed decides; so what is shown for one seed is shown again for it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from penstock.broker.contract import ACCEPTED
from penstock.overlay.controller import OverlayController
from penstock.overlay.heartbeats import HeartbeatSettings
from penstock.overlay.messages import WITHDRAWN_KINDS
from penstock.overlay.router import OverlayRouter
from penstock.overlay.rules import RoutingRules
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope


class Clock:
    """Time that passes when it is told to, and what is to happen in it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._due: list[tuple[float, int, Alarm]] = []
        self._set = 0

    def __call__(self) -> float:
        return self.now

    def later(self, seconds: float, action: Callable[[], None]) -> Alarm:
        alarm = Alarm(action)
        self._set += 1
        heappush(self._due, (self.now + seconds, self._set, alarm))
        return alarm

    def next_due(self, before: float) -> bool:
        """Let the next thing happen, if it is to happen before then."""
        if not self._due or self._due[0][0] > before:
            return False
        self.now, _, alarm = heappop(self._due)
        if not alarm.cancelled:
            alarm.action()
        return True


@dataclass
class Alarm:
    action: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class All:
    """What a broker has told another: this, and nothing else."""

    told: set[tuple[EnvelopeKind, str, str]]


@dataclass
class Wire:
    """One way between two brokers."""

    sender: str
    receiver: str
    up: bool = True
    under_way: deque[PadresEnvelope | All] = field(default_factory=deque)
    straight: deque[PadresEnvelope] = field(
        default_factory=deque
    )  #: goes even if the sender is stopped
    carried: dict[EnvelopeKind, int] = field(default_factory=lambda: dict.fromkeys(EnvelopeKind, 0))

    def put(self, envelope: PadresEnvelope) -> None:
        if self.up:
            self.straight.append(envelope)

    def send(self, envelope: PadresEnvelope) -> int:
        if self.up or envelope.kind is EnvelopeKind.PUBLISH:
            self.under_way.append(envelope)
        return ACCEPTED


class Person:
    """A client: what it got, in order."""

    checked = True

    def __init__(self, overlay: Overlay, broker: str, name: str) -> None:
        self.overlay = overlay
        self.broker = broker
        self.name = f"{broker}-{name}"
        self.durable = False
        self.got: list[PadresEnvelope] = []
        self.router.attach(self)

    @property
    def router(self) -> OverlayRouter:
        return self.overlay.routers[self.broker]

    def deliver(self, envelope: PadresEnvelope) -> int:
        self.got.append(envelope)
        return ACCEPTED

    def say(self, kind: EnvelopeKind, text: str, **header: object) -> str:
        return self.router.receive(self, PadresEnvelope(kind, text, **header)).id  # type: ignore[arg-type]

    def advertise(self, text: str, **header: object) -> str:
        return self.say(EnvelopeKind.ADVERTISE, text, **header)

    def subscribe(self, text: str, **header: object) -> str:
        return self.say(EnvelopeKind.SUBSCRIBE, text, **header)

    def composite(self, text: str, **header: object) -> str:
        return self.say(EnvelopeKind.COMPOSITE, text, **header)

    def publish(self, text: str, **header: object) -> str:
        return self.say(EnvelopeKind.PUBLISH, text, **header)

    def take(self) -> list[str]:
        """The ids of what came since."""
        got, self.got = self.got, []
        return [envelope.id for envelope in got]

    def texts(self) -> list[str]:
        got, self.got = self.got, []
        return [envelope.text for envelope in got]


class Notebook:
    """What a broker remembers when it is started again: one that cannot be torn."""

    def __init__(self) -> None:
        self.asked: dict[tuple[str, EnvelopeKind, str, str], tuple[str, PadresEnvelope]] = {}
        self._number = 0

    def add(self, hop: str, envelope: PadresEnvelope) -> None:
        key = self._key(hop, envelope.kind, envelope.id, envelope.tree)
        self.asked[key] = (hop, envelope)

    def remove(self, hop: str, envelope: PadresEnvelope) -> None:
        key = self._key(hop, WITHDRAWN_KINDS[envelope.kind], envelope.text, envelope.tree)
        self.asked.pop(key, None)

    def _key(
        self, hop: str, kind: EnvelopeKind, identity: str, tree: str
    ) -> tuple[str, EnvelopeKind, str, str]:
        return ("" if kind is EnvelopeKind.ADVERTISE else hop, kind, identity, tree)

    def next_number(self) -> int:
        self._number += 1
        return self._number


class Told:
    """What a broker was told to do that needs more than a router."""

    def __init__(self) -> None:
        self.actions: list[str] = []

    def connect(self, uri: str) -> None:
        self.actions.append(f"connect {uri}")

    def disconnect(self, name: str) -> None:
        self.actions.append(f"disconnect {name}")

    def shutdown(self) -> None:
        self.actions.append("shutdown")


class Overlay:
    def __init__(
        self,
        links: Iterable[tuple[str, str]],
        rules: RoutingRules | None = None,
        seed: int = 0,
        pulse: HeartbeatSettings | None = None,
    ) -> None:
        """With a pulse, brokers do what they are told and say how they are."""
        self.clock = Clock()
        self.rules = rules or RoutingRules()
        self.routers: dict[str, OverlayRouter] = {}
        self.wires: dict[tuple[str, str], Wire] = {}
        self._random = random.Random(seed)
        self.notebooks: dict[str, Notebook] = {}
        self.controllers: dict[str, OverlayController] = {}
        self.told: dict[str, Told] = {}
        self._pulse = pulse
        for one, other in links:
            self.link(one, other)

    def broker(self, name: str) -> OverlayRouter:
        if name not in self.routers:
            notebook = self.notebooks.setdefault(name, Notebook())
            router = self.routers[name] = OverlayRouter(
                name, self.rules, store=notebook, clock=self.clock
            )
            if self._pulse is not None:
                told = Told()
                self.told[name] = told
                self.controllers[name] = OverlayController(router, self.clock, told, self._pulse)
        return self.routers[name]

    def person(self, broker: str, name: str) -> Person:
        self.broker(broker)
        return Person(self, broker, name)

    def link(self, one: str, other: str) -> None:
        """Two neighbours, each of which tells the other all it has."""
        for sender, receiver in ((one, other), (other, one)):
            wire = self.wires[sender, receiver] = Wire(sender, receiver)
            self.broker(sender).join(receiver, wire).mark_up(self.clock())
            self.broker(receiver)
        for sender, receiver in ((one, other), (other, one)):
            router = self.routers[sender]
            self.wires[sender, receiver].under_way.clear()
            router.propagate_all(router.neighbours[receiver])

    def cut(self, one: str, other: str, lost: bool = False, only: str = "") -> None:
        """A link breaks; publications wait, and what else was under way may be lost.

        `only` is who notices, if the other is no more.
        """
        for sender, receiver in ((one, other), (other, one)):
            wire = self.wires[sender, receiver]
            wire.up = False
            if lost:
                wire.under_way.clear()
            if only in ("", sender):
                self.routers[sender].neighbours[receiver].up = False

    def mend(self, one: str, other: str) -> None:
        """The link is there again: each tells the other all it has, and that this was all."""
        for sender, receiver in ((one, other), (other, one)):
            self.wires[sender, receiver].up = True
            router = self.routers[sender]
            neighbour = router.neighbours[receiver]
            neighbour.mark_up(self.clock())
            told = {(each.kind, each.id, each.tree) for each in router.propagate_all(neighbour)}
            self.wires[sender, receiver].under_way.append(All(told))

    def crash(self, name: str) -> None:
        """A broker goes and comes back with what it remembers; its links are down.

        Whoever is durable is attached to it again.
        """
        before = self.routers.pop(name)
        for neighbour in before.neighbours:
            self.cut(name, neighbour, lost=True, only=neighbour)
        router = self.broker(name)
        for neighbour in before.neighbours:
            router.join(neighbour, self.wires[name, neighbour])
        for hop in before.hops.values():
            if isinstance(hop, Person) and hop.durable:
                router.attach(hop)
        for hop_name, envelope in list(self.notebooks[name].asked.values()):
            router.restore(hop_name, envelope)

    def settle(self) -> int:
        """Carry all there is, some ways further than others; returns how many messages crossed."""
        crossed = 0
        chance = self._random
        while busy := [wire for wire in self.wires.values() if self._moves(wire)]:
            for wire in chance.sample(busy, chance.randint(1, len(busy))):
                for _ in range(chance.randint(1, 4)):
                    if not self._moves(wire):
                        break
                    self.carry(wire)
                    crossed += 1
        return crossed

    def _moves(self, wire: Wire) -> bool:
        held = self.routers[wire.sender].next_hops.stopped
        return wire.up and bool(wire.straight or (wire.under_way and not held))

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due in it."""
        end = self.clock.now + seconds
        self.settle()
        while self.clock.next_due(end):
            self.settle()
        self.clock.now = end

    def carry(self, wire: Wire) -> None:
        envelope = wire.straight.popleft() if wire.straight else wire.under_way.popleft()
        router = self.routers[wire.receiver]
        if isinstance(envelope, All):
            router.retain_only(wire.sender, envelope.told)
            return
        wire.carried[envelope.kind] += 1
        router.receive(router.neighbours[wire.sender], envelope)

    def carried(self, *kinds: EnvelopeKind) -> int:
        return sum(
            wire.carried[kind] for wire in self.wires.values() for kind in kinds or EnvelopeKind
        )

    def has(self, broker: str, identity: str) -> bool:
        """Whether a broker holds an advertisement or a subscription."""
        tables = self.routers[broker].tables
        return identity in tables.advertisements or any(
            key[0] == identity for key in tables.subscriptions
        )

    def holders(self, identity: str) -> list[str]:
        return [name for name in self.routers if self.has(name, identity)]


def tree(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """A random tree of brokers."""
    chance = random.Random(seed)
    for number in range(1, count):
        yield f"B{chance.randrange(number)}", f"B{number}"


def graph(count: int, more: int, seed: int) -> list[tuple[str, str]]:
    """A random tree, and so many links more that close cycles."""
    chance = random.Random(seed)
    links = list(tree(count, seed))
    known = {frozenset(link) for link in links}
    while len(known) < count - 1 + more:
        pair = frozenset(f"B{number}" for number in chance.sample(range(count), 2))
        if pair not in known:
            known.add(pair)
            one, other = sorted(pair)
            links.append((one, other))
    return links
