"""All brokers of an overlay as one of them sees them: who there is, how each is, what is linked.

It is what PADRES' monitor does: look for brokers (`NETWORK_DISCOVERY`), hear how they are
(`BROKER_INFO`), and tell them what to do. To the router it is a hop like any other. Who has not
been heard of for a while is told apart by when that was; whether it has gone is not for us to say.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from time import time
from typing import Any, Final

from penstock.broker.contract import ACCEPTED
from penstock.content.formatter import format_publication
from penstock.content.messages import Publication, Value
from penstock.content.parser import parse_publication
from penstock.overlay.router import OverlayRouter
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope

_ADVERTISED: Final = (
    "[class,eq,NETWORK_DISCOVERY]",
    "[class,eq,GLOBAL_FD],[flag,isPresent,'']",
    "[class,eq,BROKER_CONTROL],[brokerID,isPresent,''],[command,isPresent,''],"
    "[broker,isPresent,'']",
)


class OverlayStatus:
    durable = False
    checked = False

    def __init__(self, router: OverlayRouter, calendar: Callable[[], float] = time) -> None:
        self.name = f"{router.broker_id}-monitor"
        self._router = router
        self._calendar = calendar
        self._heard: dict[str, dict[str, Any]] = {}
        router.attach(self)
        for text in _ADVERTISED:
            router.receive(self, PadresEnvelope(EnvelopeKind.ADVERTISE, text))
        router.receive(self, PadresEnvelope(EnvelopeKind.SUBSCRIBE, "[class,eq,BROKER_INFO]"))

    def deliver(self, envelope: PadresEnvelope) -> int:
        """Brokers alone are believed: what clients say of them is not looked at."""
        broker = parse_publication(envelope.text).attributes.get("brokerID")
        told = _decode_status(envelope.payload) if envelope.source == f"{broker}-broker" else None
        if told is not None:
            self._heard[str(broker)] = {**told, "heard": self._calendar()}
        return ACCEPTED

    def look(self) -> list[dict[str, Any]]:
        """What was heard so far, by id; and ask anew, for who looks again."""
        self._say("NETWORK_DISCOVERY", {})
        now = self._calendar()
        return [
            {**told, "age": max(0.0, now - told["heard"])}
            for _, told in sorted(self._heard.items())
        ]

    def tell(self, broker: str, command: str, other: str = "") -> None:
        """Have a broker do something; what it makes of it, it says itself."""
        said: dict[str, Value] = {"brokerID": broker, "command": command}
        if other:
            said["broker"] = other
        self._say("BROKER_CONTROL", said)

    def set_heartbeats(self, enabled: bool) -> None:
        """Of all brokers."""
        self._say("GLOBAL_FD", {"flag": "true" if enabled else "false"})

    def _say(self, class_name: str, said: dict[str, Value]) -> None:
        text = format_publication(Publication(class_name, said))
        self._router.receive(self, PadresEnvelope(EnvelopeKind.PUBLISH, text, durable=False))


def _decode_status(payload: bytes) -> dict[str, Any] | None:
    """None if it makes no sense: a broker of another make need not say what ours do."""
    try:
        told = json.loads(payload)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None
