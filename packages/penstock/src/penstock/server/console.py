"""The console of a content space: one command a line, one answer; the same by shell and by web.

What is injected here belongs to the broker: it goes by a hop of the console's own, which lives as
long as the broker does. Publications that its subscriptions bring are kept for a while, to be
looked at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from penstock.broker.content_routing import RouterReceipt
from penstock.broker.contract import ACCEPTED, LOGGED, REJECTED
from penstock.core.errors import NotFound, PreconditionFailed, QueueFull
from penstock.overlay.router import OverlayRouter
from penstock.server.content_space import ContentSpace
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope

#: Publications that can still be looked at.
MAX_RECEIVED: Final = 100


class ConsoleHop:
    durable = False
    checked = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.received: deque[PadresEnvelope] = deque(maxlen=MAX_RECEIVED)

    def deliver(self, envelope: PadresEnvelope) -> int:
        self.received.append(envelope)
        return ACCEPTED


@dataclass(frozen=True, slots=True)
class ConsoleReply:
    text: str
    outcome: int = ACCEPTED  #: LOGGED when it is not safe before the next commit


class ContentConsole:
    def __init__(self, space: ContentSpace, router: OverlayRouter) -> None:
        self._space = space
        self._router = router
        self._hop = ConsoleHop(f"{router.broker_id}-console")
        space.attach(self._hop)
        self._commands: dict[str, tuple[str, Callable[[str], ConsoleReply]]] = {
            "help": ("help: what there is", self._help),
            "info": (
                "info: the broker, its neighbours and clients, and how much there is",
                self._info,
            ),
            "printsubs": ("printsubs [nohead] [classonly]: subscriptions", self._subscriptions),
            "printadvs": ("printadvs [nohead] [classonly]: advertisements", self._advertisements),
            "received": ("received: what the console's own subscriptions brought", self._received),
            "sub": ("sub [class,eq,NAME],…: subscribe", self._subscribe),
            "csub": ("csub {{…}&{…}}: subscribe to publications together", self._subscribe),
            "adv": ("adv [class,eq,NAME],…: advertise", self._advertise),
            "pub": ("pub [class,NAME],…: publish", self._publish),
            "unsub": ("unsub ID…: withdraw subscriptions of the console's", self._unsubscribe),
            "unadv": ("unadv ID…: withdraw advertisements of the console's", self._unadvertise),
        }

    def run(self, line: str) -> ConsoleReply:
        """Empty lines and those that begin with # do nothing."""
        name, _, argument = line.strip().partition(" ")
        if not name or name.startswith("#"):
            return ConsoleReply("")
        if name.lower() not in self._commands:
            raise NotFound(f"there is no command {name!r}; `help` shows what there is")
        return self._commands[name.lower()][1](argument.strip())

    # Looking.

    def _help(self, argument: str) -> ConsoleReply:
        return ConsoleReply("\n".join(usage for usage, _ in self._commands.values()))

    def info(self) -> dict[str, Any]:
        router, tables = self._router, self._router.tables
        prefix = f"{router.broker_id}-"
        return {
            "broker": router.broker_id,
            "neighbours": sorted(router.neighbours),
            "clients": sorted(name for name in router.hops if name.startswith(prefix)),
            "advertisements": len(tables.advertisements),
            "subscriptions": sum(not one.composite for one in tables.subscriptions.values()),
            "composites": len(router.composite_router.entries),
            "received": {kind.name.lower(): count for kind, count in router.received.items()},
        }

    def _info(self, argument: str) -> ConsoleReply:
        lines = []
        for name, fact in self.info().items():
            if isinstance(fact, dict):
                fact = ", ".join(f"{one} {count:,}" for one, count in fact.items())
            elif isinstance(fact, list):
                fact = ", ".join(fact) or "none"
            lines.append(f"{name:<15} {fact}")
        return ConsoleReply("\n".join(lines))

    def _subscriptions(self, argument: str) -> ConsoleReply:
        plain = [
            (one.id, one.hop, one.message.class_name, one.envelope.text)
            for one in self._router.tables.subscriptions.values()
            if not one.composite
        ]
        together = [
            (id_, one.hop, "", one.envelope.text)
            for id_, one in self._router.composite_router.entries.items()
        ]
        return _table([*plain, *together], argument)

    def _advertisements(self, argument: str) -> ConsoleReply:
        found = self._router.tables.advertisements.values()
        return _table(
            [(one.id, one.hop, one.message.class_name, one.envelope.text) for one in found],
            argument,
        )

    def _received(self, argument: str) -> ConsoleReply:
        return ConsoleReply(
            "\n".join(f"{one.id}  {one.source}  {one.text}" for one in self._hop.received)
        )

    # Injecting.

    def _subscribe(self, argument: str) -> ConsoleReply:
        together = argument.startswith("{")
        return self._say(
            PadresEnvelope(EnvelopeKind.COMPOSITE if together else EnvelopeKind.SUBSCRIBE, argument)
        )

    def _advertise(self, argument: str) -> ConsoleReply:
        return self._say(PadresEnvelope(EnvelopeKind.ADVERTISE, argument))

    def _publish(self, argument: str) -> ConsoleReply:
        return self._say(PadresEnvelope(EnvelopeKind.PUBLISH, argument))

    def _unsubscribe(self, argument: str) -> ConsoleReply:
        return self._undo(EnvelopeKind.UNSUBSCRIBE, argument)

    def _unadvertise(self, argument: str) -> ConsoleReply:
        return self._undo(EnvelopeKind.UNADVERTISE, argument)

    def _undo(self, kind: EnvelopeKind, argument: str) -> ConsoleReply:
        ids = argument.replace(",", " ").split()
        if not ids:
            raise PreconditionFailed("an id is needed, such as Broker1-M7")
        for id_ in ids:
            self._receive(PadresEnvelope(kind, id_))
        return ConsoleReply("")

    def _say(self, envelope: PadresEnvelope) -> ConsoleReply:
        receipt = self._receive(envelope)
        return ConsoleReply(receipt.id, receipt.outcome & LOGGED)

    def _receive(self, envelope: PadresEnvelope) -> RouterReceipt:
        receipt = self._space.receive(self._hop, envelope)
        if receipt.outcome & REJECTED:
            raise QueueFull("a queue has no room for the publication")
        return receipt


def _table(rows: Iterable[tuple[str, str, str, str]], argument: str) -> ConsoleReply:
    """Ids, who it came from and the text; or each class once."""
    words = argument.split()
    unknown = set(words) - {"nohead", "classonly"}
    if unknown:
        raise PreconditionFailed(f"{min(unknown)!r}: what may follow is nohead and classonly")
    if "classonly" in words:
        head, lines = "class", sorted({row[2] for row in rows if row[2]})
    else:
        head, lines = "id  from  message", [f"{row[0]}  {row[1]}  {row[3]}" for row in rows]
    return ConsoleReply("\n".join(lines if "nohead" in words else [head, *lines]))
