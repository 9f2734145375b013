"""How two brokers become neighbours, over a connection that is there already.

    ask      OVERLAY-CONNECT_REQ   be my neighbour; I am `fromID` (`fromURI` is PADRES')
    answer   OVERLAY-CONNECT_ACK   you are mine: tell me what you have
    tell     advertisements and subscriptions, then OVERLAY-STATE: these were all

Each does it in its own time. They are publications of class BROKER_CONTROL that cross this link and
no other. Brokers whose rules do not go together are not neighbours. What was told is listed in
pieces, the last of which says so.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from penstock.content.fast import parse_publication
from penstock.content.messages import Publication
from penstock.content.printing import print_publication
from penstock.content.values import Value
from penstock.core.errors import FrameError
from penstock.core.logs import get_logger
from penstock.overlay.errors import LinkRefused
from penstock.wire.padres.envelope import Envelope, Kind

if TYPE_CHECKING:
    from penstock.overlay.link import Link

CONTROL: Final = "[class,BROKER_CONTROL]"
REQUEST: Final = "OVERLAY-CONNECT_REQ"
AGREED: Final = "OVERLAY-CONNECT_ACK"
STATE: Final = "OVERLAY-STATE"
#: How many are listed in one piece.
LISTED: Final = 10_000

_log = get_logger("penstock.overlay")


class Agreement:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._name = ""
        self._told: set[tuple[Kind, str, str]] = set()

    def ask(self, name: str) -> None:
        self._name = name
        self._say(REQUEST)

    def take(self, envelope: Envelope) -> bool:
        """Whether a message was about being neighbours."""
        if envelope.kind is not Kind.PUBLISH or envelope.ttl != 0:
            return False
        if not envelope.text.startswith(CONTROL):
            return False
        said = parse_publication(envelope.text).attributes
        command = said.get("command")
        if command not in (REQUEST, AGREED, STATE):
            return False
        if said.get("fromID") != self._name:
            raise FrameError(f"{said.get('fromID')} speaks on the link of {self._name}")
        if command == REQUEST:
            self._requested(str(said.get("rules", "")))
        elif command == AGREED:
            self._tell_all()
        else:
            self._told_more(envelope.payload, last=said.get("last") == 1)
        return True

    def _requested(self, rules: str) -> None:
        ours = self._link.links.router.rules.agreed
        if rules and rules != ours:
            raise LinkRefused(
                f"{self._name} routes by {rules}, and this broker by {ours}: "
                "all brokers of an overlay have the same settings"
            )
        neighbour, line = self._link.links.joined(self._link, self._name)
        self._say(AGREED)
        self._link.agreed(neighbour, line)

    def _tell_all(self) -> None:
        neighbour = self._link.neighbour
        if neighbour is None:
            raise FrameError(f"{self._name} agrees before it was asked")
        router = self._link.links.router
        neighbour.came_up(router.exits.clock())
        told = router.tell_all(neighbour)
        listed = [[one.kind.name, one.id, one.tree] for one in told]
        for start in range(0, max(1, len(listed)), LISTED):
            last = int(start + LISTED >= len(listed))
            self._say(STATE, json.dumps(listed[start : start + LISTED]).encode(), last=last)
        _log.info("linked", neighbour=self._name, told=len(told))

    def _told_more(self, payload: bytes, last: bool) -> None:
        try:
            for kind, identity, tree in json.loads(payload):
                self._told.add((Kind[kind], identity, tree))
        except (ValueError, KeyError, TypeError) as error:
            raise FrameError(f"{self._name} told all, but not what: {error}") from None
        if last:
            told, self._told = self._told, set()
            self._link.links.router.only_these(self._name, told)

    def _say(self, command: str, payload: bytes = b"", **more: Value) -> None:
        links = self._link.links
        said: dict[str, Value] = {
            "brokerID": self._name,
            "command": command,
            "fromID": links.router.broker_id,
            "fromURI": links.uri,
            "rules": links.router.rules.agreed,
            **more,
        }
        text = print_publication(Publication("BROKER_CONTROL", said))
        self._link.note(Envelope(Kind.PUBLISH, text, payload=payload, ttl=0, durable=False))
