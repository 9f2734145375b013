"""The console of a content space, for the command line and the web page: a command per line.

Its subscriptions and publications belong to a hop of the console, which exists until the broker
stops. The last publications that its subscriptions received can be listed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from penstock.broker.content_router import RouterReceipt
from penstock.broker.contract import ACCEPTED, LOGGED, REJECTED
from penstock.core.errors import NotFound, PreconditionFailed, QueueFull
from penstock.overlay.router import OverlayRouter
from penstock.server.content_space import ContentSpace
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope

#: Received publications that are kept.
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
    outcome: int = ACCEPTED  #: LOGGED if it waits for the next commit


class ContentConsole:
    def __init__(self, space: ContentSpace, router: OverlayRouter) -> None:
        self._space = space
        self._router = router
        self._hop = ConsoleHop(f"{router.broker_id}-console")
        space.attach(self._hop)
        kinds = EnvelopeKind
        self._commands: dict[str, tuple[str, Callable[[str], ConsoleReply]]] = {
            "help": (": list the commands", self._help),
            "info": (": the broker, its neighbours and clients, and counts", self._info),
            "printsubs": (" [nohead] [classonly]: subscriptions", self._subscriptions),
            "printadvs": (" [nohead] [classonly]: advertisements", self._advertisements),
            "received": (": publications for the console's own subscriptions", self._received),
            "sub": (" [class,eq,NAME],…: subscribe", self._subscribe),
            "csub": (" {{…}&{…}}: subscribe to a composite", self._subscribe),
            "adv": (" [class,eq,NAME],…: advertise", partial(self._send, kinds.ADVERTISE)),
            "pub": (" [class,NAME],…: publish", partial(self._send, kinds.PUBLISH)),
            "unsub": (" ID…: withdraw subscriptions", partial(self._withdraw, kinds.UNSUBSCRIBE)),
            "unadv": (" ID…: withdraw advertisements", partial(self._withdraw, kinds.UNADVERTISE)),
        }

    def run(self, line: str) -> ConsoleReply:
        """Empty lines and those that begin with # do nothing."""
        name, _, argument = line.strip().partition(" ")
        if not name or name.startswith("#"):
            return ConsoleReply("")
        if name.lower() not in self._commands:
            raise NotFound(f"unknown command {name!r}; `help` lists the commands")
        return self._commands[name.lower()][1](argument.strip())

    def _help(self, argument: str) -> ConsoleReply:
        return ConsoleReply("\n".join(name + usage for name, (usage, _) in self._commands.items()))

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
        composites = [
            (id_, one.hop, "", one.envelope.text)
            for id_, one in self._router.composite_router.entries.items()
        ]
        return _table([*plain, *composites], argument)

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

    def _subscribe(self, argument: str) -> ConsoleReply:
        composite = argument.startswith("{")
        return self._send(EnvelopeKind.COMPOSITE if composite else EnvelopeKind.SUBSCRIBE, argument)

    def _withdraw(self, kind: EnvelopeKind, argument: str) -> ConsoleReply:
        ids = argument.replace(",", " ").split()
        if not ids:
            raise PreconditionFailed("an id is required, such as Broker1-M7")
        for id_ in ids:
            self._receive(PadresEnvelope(kind, id_))
        return ConsoleReply("")

    def _send(self, kind: EnvelopeKind, text: str) -> ConsoleReply:
        receipt = self._receive(PadresEnvelope(kind, text))
        return ConsoleReply(receipt.id, receipt.outcome & LOGGED)

    def _receive(self, envelope: PadresEnvelope) -> RouterReceipt:
        receipt = self._space.receive(self._hop, envelope)
        if receipt.outcome & REJECTED:
            raise QueueFull("a queue has no room for the publication")
        return receipt


def _table(rows: Iterable[tuple[str, str, str, str]], argument: str) -> ConsoleReply:
    """Ids, hops and texts; or each class once."""
    words = argument.split()
    unknown = set(words) - {"nohead", "classonly"}
    if unknown:
        raise PreconditionFailed(f"unknown option {min(unknown)!r}: use nohead or classonly")
    if "classonly" in words:
        head, lines = "class", sorted({row[2] for row in rows if row[2]})
    else:
        head, lines = "id  from  message", [f"{row[0]}  {row[1]}  {row[3]}" for row in rows]
    return ConsoleReply("\n".join(lines if "nohead" in words else [head, *lines]))
